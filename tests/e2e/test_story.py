"""The loop on real kubelets: apply, pinned pod, gate, promote, roll back."""

from __future__ import annotations

from demo.world import World
from tests.e2e.conftest import NAME, ResourceMaker, deploy


def test_a_first_revision_is_guaranteed_pinned_verified_and_answers(world: World, resource: ResourceMaker) -> None:
    deploy(world, resource())
    pod = world.pods(NAME)[0]
    assert pod["status"]["qosClass"] == "Guaranteed"
    placement = world.get("encdep", NAME)["status"]["placement"][0]
    assert placement["pinned"] is True
    assert placement["cpuset"] == world.cpus_allowed(pod["metadata"]["name"])
    assert "," not in placement["cpuset"]
    assert "-" not in placement["cpuset"]
    assert world.condition(NAME, "Pinned")["reason"] == "Exclusive"
    assert world.condition(NAME, "ModelVerified")["status"] == "True"
    assert "FP32 reference" in world.condition(NAME, "GatesPassed")["message"]
    answer = world.embed(NAME, "Where is the invoice for March?")
    assert len(answer["data"][0]["embedding"]) == 384
    assert answer["model"] == f"{NAME}@all-minilm-l6@1"


def test_a_good_revision_takes_over_without_a_failed_request(
    world: World, stable: str, resource: ResourceMaker
) -> None:
    before = world.pods(NAME)[0]
    with world.client(NAME) as finish:
        second = deploy(world, resource("ticket-router-int8.yaml"))
        world.wait_condition(NAME, "Progressing", "False", "Complete")
        counted = finish()
    assert second != stable
    assert counted["failures"] == []
    assert set(counted["answers"]) == {stable, second}
    after = world.pods(NAME)
    assert len(after) == 1
    assert after[0]["spec"]["nodeName"] != before["spec"]["nodeName"]
    assert world.condition(NAME, "Pinned")["status"] == "True"
    serving = world.items("endpointslices", f"kubernetes.io/service-name={NAME}")[0]["endpoints"]
    assert [e["targetRef"]["uid"] for e in serving] == [after[0]["metadata"]["uid"]]


def test_wrong_pooling_is_refused_by_the_cosine_gate(world: World, stable: str, resource: ResourceMaker) -> None:
    uid = world.pods(NAME)[0]["metadata"]["uid"]
    world.apply(resource("ticket-router-wrong-pooling.yaml"))
    world.wait_condition(NAME, "Ready", "False", "RolledBack")
    gates = world.condition(NAME, "GatesPassed")
    assert gates["reason"] == "CosineBelowThreshold"
    assert "cosine.min 0." in gates["message"]
    assert [p["metadata"]["uid"] for p in world.pods(NAME) if p["metadata"]["labels"].get("numaserve.dev/serving")] == [
        uid
    ]
    assert world.get("encdep", NAME)["status"]["stableRevision"] == stable
    reasons = {e["reason"] for e in world.items("events")}
    assert {"RevisionCreated", "GatePassed", "Promoted", "RolledBack", "CosineBelowThreshold"} <= reasons
    table = world.kubectl("get", "encdep", NAME)
    assert "RolledBack" in table
    assert "0." in table


def test_scaling_down_to_zero_frees_the_cores_and_back_up_serves(world: World, stable: str) -> None:
    world.kubectl("scale", "encdep", NAME, "--replicas=0")
    world.wait_condition(NAME, "Ready", "True", "ScaledToZero")
    world.kubectl("wait", "--for=delete", "pod", "-l", f"numaserve.dev/name={NAME}", "--timeout=60s")
    world.kubectl("scale", "encdep", NAME, "--replicas=1")
    world.wait_condition(NAME, "Ready", "True", "Promoted")
    assert world.get("encdep", NAME)["status"]["stableRevision"] == stable
