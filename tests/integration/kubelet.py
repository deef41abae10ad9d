"""What the control plane lacks when it stands alone: a kubelet that says pods run, and servers that answer.

Both are fakes of our own seams; everything between them (API server, ReplicaSet, EndpointSlice and garbage
collector controllers, the operator) is real.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from numaserve_api import names
from numaserve_api.probe import GateAnswer, GateQuery, PlacementReport, SamplePage, VectorPage
from numaserve_operator.domain.errors import OperatorError, Transient
from numaserve_operator.domain.plan import PodTarget
from numaserve_operator.kube.api import Api, path_of

Json = dict[str, Any]
DIMENSION = 8


@dataclass
class Servers:
    """A ProbeClient for pods that exist only as objects. ``broken`` revisions answer other vectors."""

    broken: set[str] = field(default_factory=set)
    drained: set[str] = field(default_factory=set)
    gates: int = 0

    async def placement(self, pod: PodTarget, token: str, seconds: float = 2.0) -> PlacementReport:
        draining = pod.uid in self.drained
        return PlacementReport(
            revision=pod.revision, artifact="sha256:" + "1" * 64, space="s@1", ready=not draining, draining=draining, cpuset="1",
            online="0-3", numa_nodes=[0], physical_cores=1, cpus_requested=1, threads_requested=1, threads=1, precision="f32",
            fingerprint="f32/x",
        )  # fmt: skip

    async def samples(self, pod: PodTarget, token: str, offset: int) -> SamplePage:
        texts = [f"text {n}" for n in range(20)]
        return SamplePage(total=20, offset=offset, digest="", texts=texts[offset:])

    async def reference(self, pod: PodTarget, token: str, offset: int) -> VectorPage:
        return VectorPage(total=0, offset=0, count=0, dimension=0, vectors="")

    async def gate(self, pod: PodTarget, token: str, query: GateQuery) -> GateAnswer:
        self.gates += 1
        seed = 2 if pod.revision in self.broken else 1
        rows = np.stack(
            [np.random.default_rng([seed, len(t), ord(t[-1])]).normal(size=DIMENSION) for t in query.inputs]
        )
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        vectors = base64.b64encode(rows.astype("<f4").tobytes()).decode()
        return GateAnswer(
            revision=pod.revision, space="s@1", count=len(rows), dimension=DIMENSION, vectors=vectors,
            token_counts=[1] * len(rows), token_digests=["t"] * len(rows), inference_seconds=0.001,
        )  # fmt: skip

    async def drain(self, pod: PodTarget, token: str) -> None:
        self.drained.add(pod.uid)


PodStatus = Callable[[Json], Json]


def running(pod: Json) -> Json:
    """Status of a pod that is up."""
    return {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "podIP": "10.9.9.9",
        "podIPs": [{"ip": "10.9.9.9"}],
        "conditions": [
            {"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [_container({"running": {}}, ready=True)],
    }


def refusing(pod: Json) -> Json:
    """Status of a pod whose server found another digest."""
    message = '{"reason": "DigestMismatch", "message": "manifest.json has digest a, b was asked for"}'
    ended = {"terminated": {"exitCode": 78, "message": message}}
    return {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [_container(ended, ready=False)],
    }


def denied(pod: Json) -> Json:
    """Status of a pod whose init container is refused by the source it asks."""
    message = '{"reason": "SourceDenied", "message": "s3://models answers HTTP 403"}'
    ended = {"terminated": {"exitCode": 78, "message": message}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    fetch = {**_container(waiting, ready=False), "name": names.FETCH_CONTAINER, "lastState": ended, "restartCount": 1}
    server = _container({"waiting": {"reason": "PodInitializing"}}, ready=False)
    return {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "conditions": [{"type": "Ready", "status": "False"}],
        "initContainerStatuses": [fetch],
        "containerStatuses": [{k: v for k, v in server.items() if k != "containerID"}],
    }


def _container(state: Json, ready: bool) -> Json:
    return {
        "name": names.SERVER_CONTAINER, "ready": ready, "restartCount": 0, "image": "i", "imageID": "i", "state": state,
        "started": ready, "containerID": "containerd://x",
    }  # fmt: skip


@dataclass
class Kubelet:
    """Binds pods of a namespace and gives them the status that ``fate`` of their revision says; deletes what is deleted."""

    api: Api
    namespace: str
    fates: dict[str, PodStatus] = field(default_factory=dict)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                for pod in (await self.api.get(path_of("Pod", self.namespace)))["items"]:
                    await self._tend(pod)
            except (Transient, OperatorError):
                pass  # a pod went away meanwhile: the next round sees what is left
            await asyncio.sleep(0.05)

    async def _tend(self, pod: Json) -> None:
        path = path_of("Pod", self.namespace, pod["metadata"]["name"])
        if "deletionTimestamp" in pod["metadata"]:
            await self.api._call("DELETE", path, None, {"gracePeriodSeconds": 0})
        elif not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": "node-1"}
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod["metadata"]["name"]},
                "target": target,
            }
            await self.api.create(f"{path}/binding", binding)
        elif (pod.get("status") or {}).get("phase") == "Pending":
            fate = self.fates.get(pod["metadata"]["labels"].get(names.LABEL_REVISION, ""), running)
            await self.api.patch(f"{path}/status", {"status": fate(pod)})
