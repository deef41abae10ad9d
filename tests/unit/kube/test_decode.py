"""Pods as the API server tells of them, reduced to what decisions use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from numaserve_operator.domain.problems import not_guaranteed
from numaserve_operator.domain.snapshot import PodView
from numaserve_operator.kube import decode

Json = dict[str, Any]
REFUSAL = '{"reason": "SourceDenied", "message": "s3://models/a answers 403"}'
ENDED: Json = {"terminated": {"exitCode": 78, "reason": "Error", "message": REFUSAL}}
BACKOFF: Json = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container=fetch"}}
DONE: Json = {"terminated": {"exitCode": 0, "reason": "Completed"}}
RUNNING: Json = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
HELD: Json = {"waiting": {"reason": "PodInitializing"}}


def container(name: str, state: Json, last: Json | None = None, restarts: int = 0, **more: Any) -> Json:
    ran = {"containerID": "containerd://x"} if "waiting" not in state or last else {}
    return {"name": name, "state": state, "lastState": last or {}, "restartCount": restarts, **ran, **more}


def pod(init: list[Json], server: Json, init_specs: list[Json] | None = None) -> PodView:
    specs = init_specs if init_specs is not None else [{"name": c["name"]} for c in init]
    raw: Json = {
        "metadata": {"name": "p", "uid": "u", "annotations": {"numaserve.dev/start": "mark"}},
        "spec": {"nodeName": "node-a", "initContainers": specs, "containers": [{"name": "server"}]},
        "status": {"phase": "Pending", "initContainerStatuses": init, "containerStatuses": [server]},
    }
    return decode.pod(raw, frozenset())


@pytest.mark.parametrize(
    "fetch",
    [
        container("fetch", ENDED),
        container("fetch", BACKOFF, last=ENDED, restarts=3),
        container("fetch", RUNNING, last=ENDED, restarts=3),
    ],
    ids=["just ended", "waiting for the next try", "trying again"],
)
def test_a_failed_fetch_speaks_for_its_pod_until_it_succeeds(fetch: Json) -> None:
    view = pod([fetch], container("server", HELD))
    assert view.initializing == "fetch"
    assert view.terminated_message == REFUSAL
    assert view.exit_code == 78
    assert view.restarts == fetch["restartCount"]
    assert view.started
    assert view.start_mark == "mark"


def test_a_fetch_under_way_is_no_failure() -> None:
    view = pod([container("fetch", RUNNING)], container("server", HELD))
    assert (view.initializing, view.waiting_reason, view.terminated_message) == ("fetch", None, None)


def test_an_image_that_is_not_pulled_for_the_fetch_is_the_pods_reason() -> None:
    unpulled = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    view = pod([container("fetch", unpulled)], container("server", HELD))
    assert (view.waiting_reason, view.waiting_message) == ("ErrImagePull", "not found")
    assert not view.started


def test_a_fetch_that_succeeded_at_last_says_nothing_any_more() -> None:
    fetched = container("fetch", DONE, last=ENDED, restarts=5)
    view = pod([fetched], container("server", RUNNING))
    assert (view.initializing, view.terminated_message, view.restarts) == (None, None, 0)


def test_the_first_init_container_that_has_to_succeed_speaks() -> None:
    first = container("mesh-init", BACKOFF, last={"terminated": {"exitCode": 1, "message": "no iptables"}}, restarts=4)
    view = pod([first, container("fetch", HELD)], container("server", HELD))
    assert (view.initializing, view.terminated_message) == ("mesh-init", "no iptables")


def test_a_sidecar_never_succeeds_and_holds_nothing_up() -> None:
    sidecar = container("mesh", RUNNING, started=True)
    specs = [{"name": "mesh", "restartPolicy": "Always"}]
    view = pod([sidecar], container("server", BACKOFF, last=ENDED, restarts=2), specs)
    assert (view.initializing, view.restarts, view.waiting_reason) == (None, 2, "CrashLoopBackOff")


def test_an_injected_init_container_is_among_the_containers() -> None:
    """One without limits takes the pod's exclusive cores away as well: it must be found by name."""
    view = pod([container("mesh-init", DONE), container("fetch", DONE)], container("server", RUNNING))
    assert view.containers == ("mesh-init", "fetch", "server")
    problem = not_guaranteed(replace(view, qos_class="Burstable"))
    assert problem is not None
    assert "Containers beside the server: mesh-init." in problem.message


def test_a_pod_evicted_while_it_fetched_was_not_refused_by_its_kubelet() -> None:
    """It did start, so it is no admission failure to count."""
    killed = {"terminated": {"exitCode": 137, "reason": "Error"}}
    assert pod([container("fetch", killed)], container("server", HELD)).started


def test_a_pod_without_init_containers_is_read_by_its_server() -> None:
    view = pod([], container("server", ENDED))
    assert (view.initializing, view.terminated_message, view.exit_code) == (None, REFUSAL, 78)
