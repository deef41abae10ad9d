"""The operator on a real API server with real controllers; only kubelet and servers are stand-ins."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from numaserve_api import names
from numaserve_api.revision import revision_hash
from numaserve_api.validate import parse_spec
from numaserve_operator.controller.operator import Operator
from numaserve_operator.controller.tokens import Tokens
from numaserve_operator.domain.snapshot import Defaults
from numaserve_operator.kube.api import Api, path_of
from numaserve_operator.kube.gateway import Gateway
from tests.integration.kubelet import Kubelet, Servers, denied, refusing, running

# An operator that is killed leaves its sockets open, as a killed process does.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
Json = dict[str, Any]
NAME = "enc"
SECONDS = 30.0


class Killed(BaseException):
    """kill -9, as far as a task can be killed."""


class CountingApi(Api):
    """Counts writes; dies for good at the n-th when told so."""

    kill_at: int = 0
    writes: int = 0
    victim: asyncio.Task[None] | None = None

    async def _call(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        if method != "GET":
            self.writes += 1
            if self.kill_at and self.writes >= self.kill_at:
                if self.victim:
                    self.victim.cancel()
                raise Killed
        return await super()._call(method, *arguments, **keywords)


def resource(letter: str = "1", **spec: Any) -> Json:
    """A resource whose model has a hash of one letter."""
    model = {"source": "pvc://models/a", "hash": "sha256:" + letter * 64, "task": "embedding", "space": "s@1"}
    config = {
        "version": 1,
        "model": model,
        "window": {"maxTokens": 128},
        "quantization": {"scheme": "none"},
        "threads": 1,
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": NAME},
        "spec": {"config": config, **spec},
    }


def revision_of(document: Json) -> str:
    """Revision a resource asks for."""
    return revision_hash(parse_spec(document), "image:1", 1)


@dataclass
class Stage:
    """A namespace with a kubelet, servers and, while wanted, an operator."""

    api: CountingApi
    operator_api: CountingApi
    namespace: str
    kubeconfig: str
    servers: Servers = field(default_factory=Servers)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def kubelet(self) -> Kubelet:
        return self._kubelet

    async def begin(self) -> None:
        """Start the kubelet."""
        self._kubelet = Kubelet(self.api, self.namespace)
        self.background = asyncio.create_task(self._kubelet.run())

    async def start_operator(self, kill_at: int = 0) -> asyncio.Task[None]:
        """A new operator process, dying at its n-th write if told so."""
        self.operator_api = await connect(self.kubeconfig)
        self.operator_api.kill_at = kill_at
        defaults = Defaults("image:1", "numaserve-system", drain_seconds=1, rest_seconds=0.5)
        operator = Operator(
            Gateway(self.operator_api),
            self.servers,
            Tokens(b"key"),
            defaults,
            self.namespace,
            resync_seconds=1,
            watch_parents=True,
        )
        self.task = asyncio.create_task(operator.run())
        self.operator_api.victim = self.task
        return self.task

    async def stop_operator(self) -> None:
        """End the operator without a goodbye."""
        self.task.cancel()
        with contextlib.suppress(BaseException):
            await self.task
        await self.operator_api.close()

    async def apply(self, document: Json) -> None:
        """kubectl apply."""
        moved = {**document, "metadata": {**document["metadata"], "namespace": self.namespace}}
        await self.api.apply(path_of(names.KIND, self.namespace, NAME), moved)

    async def get(self) -> Json:
        """The resource."""
        return await self.api.get(path_of(names.KIND, self.namespace, NAME))

    async def items(self, kind: str) -> list[Json]:
        """Objects of the resource."""
        found = await self.api.get(path_of(kind, self.namespace), {"labelSelector": f"{names.LABEL_NAME}={NAME}"})
        return list(found["items"])

    async def until(self, check: Callable[[Json], bool], what: str, seconds: float = SECONDS) -> Json:
        """Wait for something about the resource."""
        try:
            async with asyncio.timeout(seconds):
                while True:
                    found = await self.get()
                    if check(found):
                        return found
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{what} did not happen; status {found.get('status')}") from None

    async def settled(self, revision: str, reason: str = "Promoted") -> Json:
        """Wait until Ready has a reason, a revision is stable and its pod is the only one."""
        found = await self.until(
            lambda r: (
                condition(r, "Ready").get("reason") == reason
                and condition(r, "Ready").get("observedGeneration") == r["metadata"]["generation"]
                and r["status"].get("stableRevision") == revision
            ),
            f"Ready/{reason} with {revision}",
        )
        async with asyncio.timeout(SECONDS):
            while {p["metadata"]["labels"][names.LABEL_REVISION] for p in await self.items("Pod")} != {revision}:
                await asyncio.sleep(0.05)
        return found


def condition(found: Json, kind: str) -> Json:
    """A condition; empty while there is none."""
    conditions = found.get("status", {}).get("conditions") or ()
    return next((c for c in conditions if c["type"] == kind), {})


async def connect(kubeconfig: str) -> CountingApi:
    """A connection of its own."""
    made = await CountingApi.connect(kubeconfig)
    assert isinstance(made, CountingApi)
    return made


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Sockets of killed operators are found here, where their warnings belong, and not in some later test."""
    yield
    gc.collect()


@pytest.fixture
async def stage(kubeconfig: Path, crd: Json, namespace: str) -> AsyncIterator[Stage]:
    """A namespace with a kubelet; the operator is started by the test."""
    api = await connect(str(kubeconfig))
    # The EndpointSlice controller leaves out pods of nodes it does not know.
    await api.apply("/api/v1/nodes/node-1", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    stage = Stage(api, api, namespace, str(kubeconfig))
    await stage.begin()
    yield stage
    if hasattr(stage, "task"):
        await stage.stop_operator()
    stage.background.cancel()
    await asyncio.gather(stage.background, return_exceptions=True)
    await api.close()


FIRST, SECOND = resource("1"), resource("2")


async def first(stage: Stage) -> str:
    """A first revision that serves."""
    await stage.start_operator()
    await stage.apply(FIRST)
    await stage.settled(revision_of(FIRST))
    return revision_of(FIRST)


async def test_a_first_revision_then_a_good_one_is_promoted_and_the_old_one_drained(stage: Stage) -> None:
    await first(stage)
    old = (await stage.items("Pod"))[0]["metadata"]["uid"]
    await stage.apply(SECOND)
    found = await stage.settled(revision_of(SECOND))
    assert old in stage.servers.drained
    assert condition(found, "GatesPassed")["status"] == "True"
    sets = {
        s["metadata"]["labels"][names.LABEL_REVISION]: s["spec"]["replicas"] for s in await stage.items("ReplicaSet")
    }
    assert sets == {revision_of(FIRST): 0, revision_of(SECOND): 1}


async def test_a_bad_revision_is_rolled_back_and_the_stable_pod_stays(stage: Stage) -> None:
    stable = await first(stage)
    before = [p["metadata"]["uid"] for p in await stage.items("Pod")]
    stage.servers.broken.add(revision_of(SECOND))
    await stage.apply(SECOND)
    found = await stage.settled(stable, "RolledBack")
    assert condition(found, "GatesPassed")["reason"] == "CosineBelowThreshold"
    assert [p["metadata"]["uid"] for p in await stage.items("Pod")] == before


async def test_a_refusal_in_the_termination_log_becomes_a_condition(stage: Stage) -> None:
    stable = await first(stage)
    stage.kubelet.fates[revision_of(SECOND)] = refusing
    await stage.apply(SECOND)
    found = await stage.settled(stable, "RolledBack")
    assert condition(found, "ModelVerified")["reason"] == "DigestMismatch"
    assert "digest a, b was asked for" in condition(found, "ModelVerified")["message"]


async def test_a_fetch_that_is_denied_is_told_and_a_corrected_source_heals_under_the_same_revision(
    stage: Stage,
) -> None:
    await first(stage)
    wrong, right = fetched(SECOND, "s3://wrong/a"), fetched(SECOND, "s3://right/a")
    revision = revision_of(wrong)
    assert revision == revision_of(right)
    stage.kubelet.fates[revision] = lambda pod: denied(pod) if "s3://wrong/a" in str(pod["spec"]) else running(pod)
    await stage.apply(wrong)
    found = await stage.until(lambda r: condition(r, "ModelVerified").get("reason") == "SourceDenied", "SourceDenied")
    assert "s3://models answers HTTP 403" in condition(found, "ModelVerified")["message"]
    assert condition(found, "Progressing")["status"] == "True"
    (stuck,) = [p for p in await stage.items("Pod") if p["metadata"]["labels"][names.LABEL_REVISION] == revision]
    await stage.apply(right)
    await stage.settled(revision)
    (pod,) = await stage.items("Pod")
    assert pod["metadata"]["uid"] != stuck["metadata"]["uid"]
    assert "s3://right/a" in pod["spec"]["initContainers"][0]["args"]
    assert pod["status"]["qosClass"] == "Guaranteed"


def fetched(document: Json, source: str) -> Json:
    """The resource with its artifact from elsewhere."""
    changed = copy.deepcopy(document)
    changed["spec"]["config"]["model"]["source"] = source
    changed["spec"]["sourceSecretRef"] = {"name": "reader"}
    return changed


async def test_at_rest_nothing_is_written(stage: Stage) -> None:
    await first(stage)
    await stage.until(lambda r: condition(r, "Progressing").get("reason") == "Complete", "Complete")
    before, requests = stage.operator_api.writes, stage.operator_api.requests
    async with asyncio.timeout(SECONDS):
        while stage.operator_api.requests < requests + 100:
            await asyncio.sleep(0.1)
    assert stage.operator_api.writes == before


async def test_a_status_erased_in_a_rollout_is_rebuilt(stage: Stage) -> None:
    await first(stage)
    await stage.apply(SECOND)
    await stage.until(lambda r: bool(r["status"].get("candidateRevision")), "a candidate")
    await stage.api.patch(path_of(names.KIND, stage.namespace, NAME, "status"), {"status": None})
    found = await stage.settled(revision_of(SECOND))
    assert {h["revision"] for h in found["status"]["history"]} >= {revision_of(SECOND)}


async def test_a_foreign_service_is_told_and_left_alone(stage: Stage) -> None:
    service = {"metadata": {"name": NAME}, "spec": {"selector": {"app": "shop"}, "ports": [{"port": 80}]}}
    await stage.api.create(path_of("Service", stage.namespace), service)
    await stage.start_operator()
    await stage.apply(FIRST)
    await stage.until(lambda r: condition(r, "Ready").get("reason") == "NameConflict", "NameConflict")
    assert await stage.items("ReplicaSet") == []
    found = await stage.api.get(path_of("Service", stage.namespace, NAME))
    assert found["spec"]["selector"] == {"app": "shop"}


async def test_a_resource_deleted_with_the_operator_stopped_leaves_nothing(stage: Stage) -> None:
    await first(stage)
    await stage.apply(SECOND)
    await stage.until(lambda r: bool(r["status"].get("candidateRevision")), "a candidate")
    await stage.stop_operator()
    await stage.api.delete(path_of(names.KIND, stage.namespace, NAME))
    async with asyncio.timeout(SECONDS):
        for kind in ("Pod", "ReplicaSet", "Service", "ConfigMap", "NetworkPolicy"):
            while await stage.items(kind):
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("bad", [False, True], ids=["promotion", "rollback"])
async def test_an_operator_killed_at_every_write_of_a_rollout_ends_the_same(stage: Stage, bad: bool) -> None:
    """Each new process dies at its n-th write, n = 1, 2, …: every write is cut short once."""
    await first(stage)
    if bad:
        stage.servers.broken.add(revision_of(SECOND))
    await stage.stop_operator()
    await stage.apply(SECOND)
    deaths = 0
    for kill_at in range(1, 60):
        task = await stage.start_operator(kill_at)
        done = asyncio.create_task(
            stage.settled(revision_of(FIRST if bad else SECOND), "RolledBack" if bad else "Promoted")
        )
        await asyncio.wait([task, done], return_when=asyncio.FIRST_COMPLETED)
        ended = done.done()
        done.cancel()
        await asyncio.gather(done, return_exceptions=True)
        if ended:
            break
        deaths += 1
        await stage.stop_operator()
    print(f"{deaths} operators died, then the rollout was over")
    assert deaths >= 3
    found = await stage.settled(revision_of(FIRST if bad else SECOND), "RolledBack" if bad else "Promoted")
    assert len(await stage.items("Pod")) == 1
    assert condition(found, "Available")["status"] == "True"
