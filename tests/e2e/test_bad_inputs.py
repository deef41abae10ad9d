"""Bad input of every kind: a condition with a reason and a remedy within seconds, stable unharmed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.world import World, wait_for
from localcluster import Cluster
from tests.e2e.conftest import NAME, ResourceMaker, deploy
from tests.e2e.injector import Injector

SECONDS = 25
"""`within seconds`: what a pod start on this machine takes, plus margin for its noise."""


def serving_pods(world: World) -> list[str]:
    """Uids of pods that serve."""
    return [p["metadata"]["uid"] for p in world.pods(NAME) if "numaserve.dev/serving" in p["metadata"]["labels"]]


def test_a_wrong_digest_is_refused_in_the_pod(world: World, stable: str, resource: ResourceMaker) -> None:
    before = serving_pods(world)
    world.apply(resource(config__model__hash="sha256:" + "0" * 64))
    told = world.wait_condition(NAME, "ModelVerified", "False", "DigestMismatch", SECONDS)
    assert "sha256:0000" in told["message"]
    world.wait_condition(NAME, "Ready", "False", "RolledBack")
    assert serving_pods(world) == before
    assert world.embed(NAME, "still there")["usage"]["prompt_tokens"] == 4


def test_a_changed_file_is_named(world: World, stable: str, resource: ResourceMaker) -> None:
    before = serving_pods(world)
    world.apply(resource("ticket-router-wrong-digest.yaml"))
    told = world.wait_condition(NAME, "ModelVerified", "False", "DigestMismatch", SECONDS)
    assert "openvino_model.bin" in told["message"]
    assert serving_pods(world) == before


def test_a_missing_file_is_named(world: World, stable: str, resource: ResourceMaker, cluster: Cluster) -> None:
    volume: Path = cluster.layout.volumes / world.namespace / "models"
    shutil.copytree(volume / "minilm-int8w", volume / "broken")
    (volume / "broken" / "tokenizer.json").unlink()
    world.apply(resource("ticket-router-int8.yaml", config__model__source="pvc://models/broken"))
    told = world.wait_condition(NAME, "ModelVerified", "False", "ArtifactMissing", SECONDS)
    assert "tokenizer.json" in told["message"]


def test_a_missing_artifact_directory_is_told(world: World, resource: ResourceMaker) -> None:
    world.apply(resource(config__model__source="pvc://models/nowhere"))
    told = wait_for(
        lambda: next((c for c in (world.condition(NAME, "ModelVerified"), world.condition(NAME, "Ready"))
                      if c.get("reason") in ("ArtifactMissing", "ContainerConfigError")), None),
        SECONDS, "a told missing directory",
    )  # fmt: skip
    assert "nowhere" in told["message"] or "pvc://" in told["message"]


def test_a_missing_claim_is_told_and_heals(world: World, stable: str, resource: ResourceMaker) -> None:
    before = serving_pods(world)
    world.apply(resource("ticket-router-int8.yaml", config__model__source="pvc://absent/minilm-int8w"))
    told = world.wait_condition(NAME, "ModelVerified", "False", "PVCNotFound", SECONDS)
    assert "absent" in told["message"]
    assert "Create the claim" in told["message"]
    assert serving_pods(world) == before


def test_an_image_that_cannot_be_pulled_is_told(world: World, stable: str, resource: ResourceMaker) -> None:
    before = serving_pods(world)
    world.apply(resource(image="numaserve.local/absent:1"))
    told = world.wait_condition(NAME, "Progressing", "True", "ImagePullFailed", SECONDS)
    assert "numaserve.local/absent:1" in told["message"]
    assert serving_pods(world) == before


def test_a_node_without_static_cpu_manager_is_refused(world: World, stable: str, resource: ResourceMaker) -> None:
    before = serving_pods(world)
    selector = {"numaserve.dev/cpu-manager": "none"}
    world.apply(resource("ticket-router-int8.yaml", placement__nodeSelector=selector))
    told = world.wait_condition(NAME, "Pinned", "False", "SharedPool", SECONDS)
    assert "cpuManagerPolicy" in told["message"]
    world.wait_condition(NAME, "Ready", "False", "RolledBack")
    assert serving_pods(world) == before


def test_no_free_core_is_told_and_heals_when_one_is_freed(world: World, stable: str, resource: ResourceMaker) -> None:
    deploy(world, resource(name="neighbour"))
    world.apply(resource("ticket-router-int8.yaml"))
    told = world.wait_condition(NAME, "Progressing", "True", "NoFreeCores", SECONDS)
    assert "Insufficient cpu" in told["message"]
    world.kubectl("delete", "encdep", "neighbour")
    world.wait_condition(NAME, "Ready", "True", "Promoted")


def test_an_injected_container_is_refused(world: World, stable: str, resource: ResourceMaker, cluster: Cluster) -> None:
    before = serving_pods(world)
    with Injector(cluster, world.namespace):
        world.apply(resource("ticket-router-int8.yaml"))
        told = world.wait_condition(NAME, "Pinned", "False", "NotGuaranteed", SECONDS)
    assert "mesh" in told["message"]
    assert "Burstable" in told["message"]
    world.wait_condition(NAME, "Ready", "False", "RolledBack")
    assert serving_pods(world) == before


def test_a_service_of_somebody_else_is_left_alone(world: World, resource: ResourceMaker) -> None:
    spec = {"selector": {"app": "shop"}, "ports": [{"port": 80}]}
    world.apply({"apiVersion": "v1", "kind": "Service", "metadata": {"name": NAME}, "spec": spec})
    world.apply(resource())
    told = world.wait_condition(NAME, "Ready", "False", "NameConflict", SECONDS)
    assert "another name" in told["message"]
    assert world.get("service", NAME)["spec"]["selector"] == {"app": "shop"}
    assert world.items("replicasets") == []
    world.kubectl("delete", "service", NAME)
    world.wait_condition(NAME, "Ready", "True", "Promoted", seconds=120)


def test_a_sample_set_that_is_missing_is_told_and_used_once_it_is_there(
    world: World, stable: str, resource: ResourceMaker
) -> None:
    samples = {"configMapRef": {"name": "tickets"}}
    world.apply(resource("ticket-router-int8.yaml", rollout__gates__samples=samples))
    told = world.wait_condition(NAME, "GatesPassed", "False", "SamplesUnreadable", SECONDS)
    assert "tickets" in told["message"]
    data = {"samples.txt": "\n".join(f"ticket {n}: the invoice is wrong" for n in range(40))}
    world.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tickets"}, "data": data})
    world.wait_condition(NAME, "Ready", "True", "Promoted")
    assert "40 samples" in world.condition(NAME, "GatesPassed")["message"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"config__quantization__scheme": "fp16"}, "no gain on CPU"),
        ({"rollout__strategy": "sideBySide"}, "not supported yet"),
        ({"config__window__buckets": [256]}, "maxTokens"),
    ],
)
def test_an_invalid_resource_is_refused_by_kubectl_apply(
    world: World, resource: ResourceMaker, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        world.apply(yaml.safe_load(yaml.safe_dump(resource(**change))))
