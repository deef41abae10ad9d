"""Recorded processes: started detached, found again, stopped only when they are the ones recorded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.errors import ClusterError
from localcluster.processes import Processes, start_time


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path / "pids", tmp_path / "logs")
    yield made
    for name in made.names():
        made.stop(name, 0.1)


def record(processes: Processes, name: str, **changes: int) -> None:
    file = processes.pids / f"{name}.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_started_component_is_found_again_by_another_command(processes: Processes) -> None:
    pid = processes.start("sleeper", ["sleep", "60"])
    assert Processes(processes.pids, processes.logs).pid("sleeper") == pid
    assert processes.names() == ["sleeper"]


def test_a_component_outlives_the_terminal_it_was_started_from(processes: Processes) -> None:
    pid = processes.start("sleeper", ["sleep", "60"])
    assert os.getsid(pid) == pid


def test_stopping_ends_the_process_and_forgets_it(processes: Processes) -> None:
    pid = processes.start("sleeper", ["sleep", "60"])
    processes.stop("sleeper")
    assert start_time(pid) is None
    assert processes.names() == []


def test_stopping_twice_is_harmless(processes: Processes) -> None:
    processes.start("sleeper", ["sleep", "60"])
    processes.stop("sleeper")
    processes.stop("sleeper")
    assert processes.pid("sleeper") is None


def test_a_process_that_ignores_the_request_is_killed(processes: Processes) -> None:
    pid = processes.start("stubborn", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"])
    processes.wait_for("stubborn", lambda: "ready" in processes.tail("stubborn"), 10, "its word")
    processes.stop("stubborn", patience=0.3)
    assert start_time(pid) is None


def test_a_stranger_who_got_the_same_id_is_left_alone(processes: Processes) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        processes.start("sleeper", ["sleep", "60"])
        ours = processes.pid("sleeper")
        record(processes, "sleeper", pid=stranger.pid)
        begun = start_time(stranger.pid)
        assert begun is not None
        record(processes, "sleeper", start=begun - 1)
        processes.stop("sleeper")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
        assert ours is not None
        os.kill(ours, signal.SIGKILL)
        os.waitpid(ours, 0)


def test_a_component_that_dies_is_named_with_the_end_of_its_log(processes: Processes) -> None:
    processes.start("etcd", ["sh", "-c", "echo disk is full; exit 3"])
    with pytest.raises(ClusterError, match=r"etcd ended while starting[\s\S]*etcd\.log[\s\S]*disk is full"):
        processes.wait_for("etcd", lambda: False, 10, "its port")


def test_the_one_that_died_is_named_not_the_one_that_waits_for_it(processes: Processes) -> None:
    processes.start("etcd", ["sh", "-c", "echo disk is full; exit 3"])
    processes.start("kube-apiserver", ["sleep", "60"])
    with pytest.raises(ClusterError, match="etcd ended while starting"):
        processes.wait_for("kube-apiserver", lambda: False, 10, "its port", running=["etcd"])


def test_a_component_that_never_gets_ready_is_named_with_the_time_it_had(processes: Processes) -> None:
    processes.start("etcd", ["sleep", "60"])
    with pytest.raises(ClusterError, match="etcd: its port not seen within 0 s"):
        processes.wait_for("etcd", lambda: False, 0.3, "its port")


def test_components_see_no_proxy(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    processes.start("talker", ["sh", "-c", "env; echo end; sleep 60"])
    processes.wait_for("talker", lambda: "end" in processes.tail("talker"), 10, "its environment")
    assert "proxy.example" not in processes.tail("talker", 1000)


def test_a_damaged_record_counts_as_not_running(processes: Processes) -> None:
    processes.pids.mkdir(parents=True)
    (processes.pids / "etcd.json").write_text("{")
    assert processes.pid("etcd") is None
    processes.stop("etcd")
    assert processes.names() == []
