"""The command line: what is passed on, what is refused, what a failure looks like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from localcluster import cli
from localcluster.cluster import Cluster
from localcluster.errors import ClusterError

runner = CliRunner()


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands that would have run in the cluster's network."""
    commands: list[list[str]] = []

    def execute(_: Cluster, command: Sequence[str]) -> int:
        commands.append(list(command))
        return 7

    monkeypatch.setattr(Cluster, "execute", execute)
    monkeypatch.setenv("CLUSTER", "local")
    return commands


def test_kubectl_gets_its_words_as_they_were_typed(executed: list[list[str]]) -> None:
    words = ["-n", "team", "exec", "pod", "-c", "server", "--", "cat", "--help"]
    result = runner.invoke(cli.app, ["kubectl", *words])
    assert executed == [["kubectl", *words]]
    assert result.exit_code == 7


def test_kubectls_own_help_is_kubectls(executed: list[list[str]]) -> None:
    runner.invoke(cli.app, ["kubectl", "--help"])
    assert executed == [["kubectl", "--help"]]


@pytest.mark.parametrize("words", [["--", "env", "--", "-i"], ["env", "--", "-i"]])
def test_exec_drops_only_its_own_separator(executed: list[list[str]], words: list[str]) -> None:
    runner.invoke(cli.app, ["exec", *words])
    assert executed == [["env", "--", "-i"]]


def test_exec_without_a_command_says_how(executed: list[list[str]]) -> None:
    result = runner.invoke(cli.app, ["exec"])
    assert isinstance(result.exception, ClusterError)
    assert "exec -- kubectl get nodes" in str(result.exception)
    assert executed == []


def test_kubeconfig_prints_the_path_of_the_named_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMASERVE_CLUSTER", "one")
    result = runner.invoke(cli.app, ["--cluster", "local", "kubeconfig"])
    assert Path(result.stdout.strip()) == Path("/var/lib/numaserve/one/kubeconfig")


def test_another_cluster_has_no_kubeconfig_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER", "local")  # the option writes it; this puts it back
    result = runner.invoke(cli.app, ["--cluster", "current", "kubeconfig"])
    assert "CLUSTER=current has no kubeconfig of ours" in str(result.exception)


def states(*lines: tuple[str, str]) -> object:
    def status(_: Cluster) -> Iterator[tuple[str, str]]:
        yield from lines

    return status


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([("etcd", "12"), ("node-a", "Ready")], 0),
        ([("etcd", "dead, see /etcd.log"), ("node-a", "Ready")], 1),
        ([("etcd", "12"), ("node-a", "NotReady")], 1),
        ([], 1),
    ],
    ids=["all well", "a component died", "a node is not ready", "nothing there"],
)
def test_status_tells_by_its_exit_code_whether_all_is_well(
    lines: list[tuple[str, str]], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER", "local")
    monkeypatch.setattr(Cluster, "status", states(*lines))
    assert runner.invoke(cli.app, ["status"]).exit_code == code


def test_a_failure_is_a_message_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ClusterError("etcd ended while starting: [disk] is full")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 1
    assert "[disk] is full" in capsys.readouterr().err.replace("\n", " ")


def test_bringing_a_cluster_up_without_root_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="run this as root"):
        Cluster().up()
