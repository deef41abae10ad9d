"""Operator killed, status erased, resource or namespace deleted in the middle: the same end every time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from demo.world import World, wait_for
from localcluster import Cluster
from localcluster.product import NAMESPACE as SYSTEM
from tests.e2e.conftest import NAME, ResourceMaker, wait_gone, wait_none

OPERATOR = "app.kubernetes.io/name=numaserve-operator"


def operator_pids(cluster: Cluster) -> list[int]:
    """Processes of the operator's containers: those in our cgroups that run its module."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            cgroup = (folder / "cgroup").read_text()
        except OSError:
            continue
        if b"numaserve_operator" in words and f"{cluster.layout.cgroup}/" in cgroup:
            found.append(int(folder.name))
    return found


def kill_process(cluster: Cluster) -> None:
    """kill -9 of the operator's process; its kubelet starts it again."""
    pids = operator_pids(cluster)
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def kill_pod(cluster: Cluster) -> None:
    """The operator's pod gone without a goodbye; its Deployment makes another."""
    cluster.kubectl("-n", SYSTEM, "delete", "pod", "-l", OPERATOR, "--grace-period=0", "--force")


def phase(world: World) -> str:
    """Phase of the rollout."""
    return str((world.get("encdep", NAME).get("status", {}).get("rollout") or {}).get("phase"))


def reach(world: World, wanted: str) -> None:
    """Wait until the rollout is in a phase, or beyond."""
    order = ["Starting", "Gating", "Shifting", "Draining", "Complete", "RolledBack"]
    later = set(order[order.index(wanted) :])
    wait_for(lambda: phase(world) in later or None, 60, f"phase {wanted}", lambda: phase(world))


@pytest.mark.parametrize(
    ("when", "kill"),
    [("Starting", kill_process), ("Gating", kill_pod), ("Draining", kill_pod)],
    ids=["starting", "gating", "draining"],
)
def test_an_operator_killed_in_a_promotion_ends_the_same(
    world: World, stable: str, resource: ResourceMaker, cluster: Cluster, when: str, kill: Callable[[Cluster], None]
) -> None:
    with world.client(NAME) as finish:
        world.apply(resource("ticket-router-int8.yaml"))
        reach(world, when)
        kill(cluster)
        world.wait_condition(NAME, "Progressing", "False", "Complete", seconds=150)
        counted = finish()
    assert counted["failures"] == []
    assert world.condition(NAME, "Ready")["status"] == "True"
    assert world.get("encdep", NAME)["status"]["stableRevision"] != stable
    assert len(world.pods(NAME)) == 1


def test_an_operator_killed_while_a_bad_revision_is_compared_rolls_it_back(
    world: World, stable: str, resource: ResourceMaker, cluster: Cluster
) -> None:
    world.apply(resource("ticket-router-wrong-pooling.yaml"))
    reach(world, "Gating")
    kill_pod(cluster)
    world.wait_condition(NAME, "Ready", "False", "RolledBack", seconds=150)
    assert world.get("encdep", NAME)["status"]["stableRevision"] == stable
    wait_for(lambda: len(world.pods(NAME)) == 1 or None, 60, "one pod left")


def test_a_status_erased_in_a_rollout_is_rebuilt(world: World, stable: str, resource: ResourceMaker) -> None:
    world.apply(resource("ticket-router-int8.yaml"))
    reach(world, "Gating")
    world.kubectl(
        "patch", "encdep", NAME, "--subresource=status", "--type=json", "-p", '[{"op": "remove", "path": "/status"}]'
    )
    world.wait_condition(NAME, "Progressing", "False", "Complete")
    status = world.get("encdep", NAME)["status"]
    assert status["stableRevision"] != stable
    assert {h["revision"] for h in status["history"]} == {stable, status["stableRevision"]}


@pytest.fixture
def stopped_operator(cluster: Cluster) -> object:
    """No operator runs during the test."""
    cluster.kubectl("-n", SYSTEM, "scale", "deployment", "-l", OPERATOR, "--replicas=0")
    cluster.kubectl("-n", SYSTEM, "wait", "--for=delete", "pod", "-l", OPERATOR, "--timeout=60s")
    yield
    cluster.kubectl("-n", SYSTEM, "scale", "deployment", "-l", OPERATOR, "--replicas=1")
    cluster.kubectl("-n", SYSTEM, "rollout", "status", "deployment/numaserve-operator", "--timeout=120s")


@pytest.fixture
def mid_rollout(world: World, stable: str, resource: ResourceMaker) -> str:
    """A candidate is being compared."""
    world.apply(resource("ticket-router-int8.yaml"))
    reach(world, "Gating")
    return stable


def test_a_resource_deleted_in_a_rollout_leaves_nothing_with_the_operator_stopped(
    world: World, mid_rollout: str, stopped_operator: object
) -> None:
    world.kubectl("delete", "encdep", NAME, "--timeout=30s")
    wait_gone(world, f"numaserve.dev/name={NAME}")
    for kind in ("replicasets", "services", "configmaps", "networkpolicies"):
        wait_none(world, kind, f"numaserve.dev/name={NAME}")


def test_a_namespace_deleted_in_a_rollout_goes_with_the_operator_stopped(
    world: World, mid_rollout: str, stopped_operator: object, cluster: Cluster
) -> None:
    cluster.kubectl("delete", "namespace", world.namespace, "--timeout=90s", timeout=100)
    left = cluster.kubectl("get", "namespace", world.namespace, "--ignore-not-found")
    assert left == ""
