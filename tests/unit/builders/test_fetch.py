"""The pod that fetches: Guaranteed, hardened, credentials in one place, nothing more than a claim's pod otherwise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from numaserve_api import names
from numaserve_api.manifest import MANIFEST_FILE, manifest_digest
from numaserve_api.quantity import parse_quantity
from numaserve_operator.builders.children import network_policy
from numaserve_operator.builders.fetch import PYTHON
from numaserve_operator.builders.podtemplate import pod_template
from numaserve_operator.domain.snapshot import ArtifactCache, Defaults
from tests.unit.domain.world import HASH, SimulatedCluster, make_spec
from tests.unit.serving.fetching import write_artifact

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
FETCHED = ("hf://owner/name@main", "s3://models/a", "https://files.example/a", "oci://registry.example/a:1")
CACHE = ArtifactCache("/var/lib/numaserve/artifacts", "100Gi")
FOLDER = "/artifacts/" + HASH.replace(":", "-")


def template(cache: ArtifactCache | None = None, cpus_per_thread: int = 1, **spec: Any) -> Json:
    return pod_template(make_spec(**spec), "enc", "rev", "image:1", cpus_per_thread, "t", serving=False, cache=cache)


def pod(cache: ArtifactCache | None = None, **spec: Any) -> Json:
    found: Json = template(cache, **spec)["spec"]
    return found


def parts(found: Json) -> tuple[Json, Json]:
    """The fetching and the serving container."""
    (fetch,) = found["initContainers"]
    (server,) = found["containers"]
    return fetch, server


def volumes(found: Json) -> dict[str, Json]:
    return {v["name"]: v for v in found["volumes"]}


def mounts(container: Json) -> dict[str, Json]:
    return {m["name"]: m for m in container["volumeMounts"]}


def options(container: Json) -> dict[str, str]:
    words = container["args"]
    return dict(zip(words[::2], words[1::2], strict=True))


@pytest.mark.parametrize("source", FETCHED)
def test_a_source_is_fetched_before_the_server_starts(source: str) -> None:
    found = pod(source=source)
    fetch, server = parts(found)
    assert fetch["command"] == [PYTHON, "-m", "numaserve_serving.fetch"]
    assert options(fetch) == {"--source": source, "--hash": HASH, "--out": "/artifact"}
    assert fetch["image"] == server["image"]
    assert options(server)["--artifact"] == "/artifact"
    assert volumes(found)["artifact"] == {"name": "artifact", "emptyDir": {}}
    assert "readOnly" not in mounts(fetch)["artifact"]
    assert mounts(server)["artifact"]["readOnly"] is True


def test_a_claim_is_mounted_as_it_was_without_init_container() -> None:
    for cache in (None, CACHE):
        found = pod(cache, source="pvc://models/a/3")
        assert "initContainers" not in found
        claim = {"claimName": "models", "readOnly": True}
        assert volumes(found)["artifact"] == {"name": "artifact", "persistentVolumeClaim": claim}
        mount = {"name": "artifact", "mountPath": "/artifact", "readOnly": True, "subPath": "a/3"}
        assert mounts(found["containers"][0])["artifact"] == mount
        assert {"fetch-tmp", "credentials"}.isdisjoint(volumes(found))


@given(st.integers(1, 64), st.integers(1, 2), st.sampled_from(["512Mi", "1Gi", "64Gi"]))
def test_the_pod_stays_guaranteed_with_whole_cores_for_the_server_alone(threads: int, each: int, memory: str) -> None:
    fetch, server = parts(template(None, each, source="s3://m", threads=threads, memory=memory)["spec"])
    for container in (fetch, server):
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    cpu = parse_quantity(fetch["resources"]["requests"]["cpu"])
    assert Fraction(cpu).denominator != 1, "the CPU manager hands out exclusive cores for whole CPUs"
    assert parse_quantity(server["resources"]["requests"]["cpu"]) == threads * each
    # A pod asks for max(init, sum of containers): fetching must not add to it.
    for kind in ("cpu", "memory"):
        asked = [parse_quantity(c["resources"]["requests"][kind]) for c in (fetch, server)]
        assert max(asked) == asked[1]


def test_the_fetcher_is_as_locked_up_as_the_server() -> None:
    found = pod(source="s3://m", sourceSecretRef={"name": "reader"})
    fetch, server = parts(found)
    assert fetch["securityContext"] == server["securityContext"]
    assert fetch["securityContext"]["readOnlyRootFilesystem"] is True
    assert fetch["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["automountServiceAccountToken"] is False
    home = next(e["value"] for e in fetch["env"] if e["name"] == "HOME")
    assert mounts(fetch)["fetch-tmp"]["mountPath"] == home
    assert "emptyDir" in volumes(found)["fetch-tmp"]


@pytest.mark.parametrize("cache", [None, CACHE], ids=["emptyDir", "node cache"])
def test_credentials_reach_the_fetcher_alone(cache: ArtifactCache | None) -> None:
    found = pod(cache, source="s3://m", sourceSecretRef={"name": "reader"})
    fetch, server = parts(found)
    secret = volumes(found)["credentials"]["secret"]
    assert secret == {"secretName": "reader", "optional": True, "defaultMode": 0o400}
    # Files of a Secret belong to root: without a group of the pod's own nobody in it could read mode 0400.
    assert found["securityContext"]["fsGroup"] == found["securityContext"]["runAsGroup"]
    assert mounts(fetch)["credentials"]["readOnly"] is True
    assert options(fetch)["--credentials"] == mounts(fetch)["credentials"]["mountPath"]
    assert options(fetch)["--secret-name"] == "reader"
    assert "credentials" not in mounts(server)
    assert "reader" not in str(server)


def test_without_a_secret_nothing_of_one_is_mounted() -> None:
    found = pod(source="s3://m")
    assert "credentials" not in volumes(found)
    assert "--credentials" not in options(parts(found)[0])


def test_a_node_cache_is_written_by_the_fetcher_and_read_by_the_server() -> None:
    found = pod(CACHE, source="s3://m")
    fetch, server = parts(found)
    path = {"path": "/var/lib/numaserve/artifacts", "type": "DirectoryOrCreate"}
    assert volumes(found)["artifact"] == {"name": "artifact", "hostPath": path}
    assert options(fetch)["--cache"] == mounts(fetch)["artifact"]["mountPath"] == "/artifacts"
    assert options(fetch)["--cache-limit"] == "100Gi"
    assert "--out" not in options(fetch)
    assert "readOnly" not in mounts(fetch)["artifact"]
    assert options(server)["--artifact"] == FOLDER
    # The whole cache, not a part of it: the lease that keeps an artifact from being evicted lies beside it.
    assert mounts(server)["artifact"] == {"name": "artifact", "mountPath": "/artifacts", "readOnly": True}


def test_the_fetcher_puts_an_artifact_where_the_server_looks(tmp_path: Path) -> None:
    from numaserve_serving.fetch.cache import Cache

    assert Cache(tmp_path).path(HASH) == tmp_path / Path(FOLDER).name


def test_the_fetchers_command_line_is_understood() -> None:
    """The other side of the contract: every option named here exists there."""
    from typer.main import get_command

    from numaserve_serving.fetch.cli import app

    known = {name for parameter in get_command(app).params for name in parameter.opts}
    for cache in (None, CACHE):
        fetch, _ = parts(pod(cache, source="s3://m", sourceSecretRef={"name": "reader"}))
        assert set(options(fetch)) <= known


@pytest.mark.parametrize("cache", [None, CACHE], ids=["emptyDir", "node cache"])
def test_what_the_pod_runs_brings_the_artifact_to_where_its_server_looks(
    cache: ArtifactCache | None, tmp_path: Path
) -> None:
    (tmp_path / "source").mkdir()
    digest = write_artifact(tmp_path / "source")
    spec = make_spec(source=f"file://{tmp_path}/source", hash=digest)
    found = pod_template(spec, "enc", "rev", "image:1", 1, "t", serving=False, cache=cache)["spec"]
    fetch, server = parts(found)
    words = [sys.executable, *fetch["command"][1:], *(_inside(tmp_path, word) for word in fetch["args"])]
    log = {names.ENV_TERMINATION_LOG: str(tmp_path / "log")}
    done = subprocess.run(words, env={**os.environ, **log}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    there = Path(_inside(tmp_path, options(server)["--artifact"]))
    assert manifest_digest((there / MANIFEST_FILE).read_bytes()) == digest


def _inside(folder: Path, word: str) -> str:
    """A path of the container below a folder of the test; other words as they are."""
    return f"{folder}{word}" if word.startswith("/") else word


def test_the_interpreter_is_where_the_image_has_it() -> None:
    dockerfile = (ROOT / "serving_image" / "Dockerfile").read_text()
    (entry,) = re.findall(r"^ENTRYPOINT \[\"([^\"]+)\"", dockerfile, re.MULTILINE)
    assert entry == PYTHON


def test_a_dump_of_the_pod_has_no_anchors() -> None:
    assert "&id" not in yaml.safe_dump(template(CACHE, source="s3://m", sourceSecretRef={"name": "reader"}))


def test_only_the_named_namespaces_use_the_cache() -> None:
    some = Defaults("i", "ns", artifact_cache=ArtifactCache("/c", "1Gi", frozenset({"team"})))
    assert some.cache_of("team") is not None
    assert some.cache_of("restricted") is None
    assert Defaults("i", "ns", artifact_cache=CACHE).cache_of("anyone") is CACHE
    assert Defaults("i", "ns").cache_of("anyone") is None


def test_what_a_pod_was_started_with_is_marked_on_it() -> None:
    marks = {
        template(source=source, **more)["metadata"]["annotations"]["numaserve.dev/start"]
        for source, more in (
            ("s3://a", {}),
            ("s3://b", {}),
            ("s3://a", {"sourceSecretRef": {"name": "reader"}}),
            ("s3://a", {"placement": {"nodeSelector": {"a": "b"}}}),
        )
    }
    assert len(marks) == 4
    assert (
        len({template(source="s3://a", replicas=n)["metadata"]["annotations"]["numaserve.dev/start"] for n in (1, 2)})
        == 1
    )


def test_no_policy_of_ours_keeps_a_pod_from_its_source() -> None:
    policy = network_policy(SimulatedCluster().snapshot().parent, "numaserve-system")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
