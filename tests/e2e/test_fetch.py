"""Artifacts fetched over TLS by real init containers: served, refused, healed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.world import World, wait_for
from localcluster import Cluster
from tests.e2e.conftest import NAME, ResourceMaker, deploy
from tests.e2e.fileserver import FileServer

MODEL = "minilm-fp32"
SECONDS = 40
"""A pod's start, a fetch that is refused, and the look that tells of it."""
HEALING_SECONDS = 240
"""The kubelet renews a Secret's files within about a minute and a half, and pauses longer between two starts."""


@pytest.fixture
def server(cluster: Cluster, models: Path) -> Iterator[FileServer]:
    """The artifact directories over https."""
    with FileServer(cluster, models) as running:
        yield running


def fetched(resource: ResourceMaker, server: FileServer, path: str = MODEL) -> dict[str, Any]:
    """The sample's model from the web server."""
    return resource(config__model__source=server.url(path), sourceSecretRef={"name": "reader"})


def test_a_fetched_artifact_is_served_by_a_pinned_pod(
    world: World, resource: ResourceMaker, server: FileServer
) -> None:
    world.apply(server.secret("reader"))
    deploy(world, fetched(resource, server))
    (pod,) = world.pods(NAME)
    assert pod["status"]["qosClass"] == "Guaranteed"
    (fetch,) = pod["status"]["initContainerStatuses"]
    assert fetch["state"]["terminated"]["exitCode"] == 0
    assert f"/{MODEL}/manifest.json" in server.asked
    assert world.condition(NAME, "Pinned")["reason"] == "Exclusive"
    assert world.condition(NAME, "ModelVerified")["reason"] == "Verified"
    name = pod["metadata"]["name"]
    assert "numaserve-credentials" not in world.kubectl("exec", name, "-c", "server", "--", "ls", "/etc")
    assert world.embed(NAME, "still there")["usage"]["prompt_tokens"] == 4


def test_a_moved_artifact_leaves_the_serving_pod_alone(
    world: World, stable: str, resource: ResourceMaker, server: FileServer
) -> None:
    before = [p["metadata"]["uid"] for p in world.pods(NAME)]
    world.apply(server.secret("reader"))
    assert deploy(world, fetched(resource, server)) == stable
    assert [p["metadata"]["uid"] for p in world.pods(NAME)] == before
    world.kubectl("delete", "pod", "-l", f"numaserve.dev/name={NAME}")
    world.wait_condition(NAME, "Ready", "True")
    wait_for(lambda: server.asked or None, SECONDS, "a new pod that fetches")


def test_a_wrong_token_is_told_and_heals_with_the_secret(
    world: World, resource: ResourceMaker, server: FileServer
) -> None:
    world.apply(server.secret("reader", token="wrong"))
    world.apply(fetched(resource, server))
    told = world.wait_condition(NAME, "ModelVerified", "False", "SourceDenied", SECONDS)
    assert "401" in told["message"]
    assert server.asked == []
    world.apply(server.secret("reader"))
    world.wait_condition(NAME, "Ready", "True", "Promoted", HEALING_SECONDS)


def test_a_missing_secret_is_told_by_name(world: World, resource: ResourceMaker, server: FileServer) -> None:
    world.apply(fetched(resource, server))
    told = world.wait_condition(NAME, "ModelVerified", "False", "SecretNotFound", SECONDS)
    assert "reader" in told["message"]


def test_a_certificate_nobody_vouches_for_is_refused(world: World, resource: ResourceMaker, server: FileServer) -> None:
    world.apply(server.secret("reader", ca=False))
    world.apply(fetched(resource, server))
    told = world.wait_condition(NAME, "ModelVerified", "False", "SourceUnreachable", SECONDS)
    assert "ca.crt" in told["message"]
    assert server.asked == []


def test_a_corrected_path_is_tried_again_under_the_same_revision(
    world: World, stable: str, resource: ResourceMaker, server: FileServer
) -> None:
    world.apply(server.secret("reader"))
    good = resource("ticket-router-int8.yaml")
    path = good["spec"]["config"]["model"]["source"].removeprefix("pvc://models/")
    good["spec"]["sourceSecretRef"] = {"name": "reader"}
    good["spec"]["config"]["model"]["source"] = server.url("nowhere")
    world.apply(good)
    told = world.wait_condition(NAME, "ModelVerified", "False", "ArtifactMissing", SECONDS)
    assert "nowhere" in told["message"]
    good["spec"]["config"]["model"]["source"] = server.url(path)
    assert deploy(world, good) != stable
