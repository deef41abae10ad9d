"""CLUSTER=local, kind and current: what each asks for and makes, as far as no Docker is needed to know it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from localcluster import volumes
from localcluster.cluster import Cluster, ready_nodes, stop_order
from localcluster.errors import ClusterError
from localcluster.machine import plan_nodes
from localcluster.targets import CurrentCluster, KindCluster, kind_config, target_of

Tool = Callable[..., Path]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    """Puts a program on PATH, alone with those put there before; each call is a line of NAME.calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("NUMASERVE_CACHE", str(tmp_path / "cache"))

    def put(name: str, script: str = "") -> Path:
        calls = tmp_path / f"{name}.calls"
        (folder / name).write_text(f'#!/bin/sh\necho : "$*" >> {calls}\n{script}\n')
        (folder / name).chmod(0o755)
        return calls

    return put


def noted(calls: Path) -> list[str]:
    """The arguments of each call. The colon keeps echo from taking `-n` for its own."""
    return [line.removeprefix(": ") for line in calls.read_text().splitlines()]


@pytest.mark.parametrize(("word", "kind"), [("local", Cluster), ("kind", KindCluster), ("current", CurrentCluster)])
def test_the_word_chooses_the_cluster(word: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTER", word)
    assert type(target_of()) is kind


def test_an_unknown_word_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ClusterError, match="CLUSTER=minikube is unknown: use local, kind or current"):
        target_of(wanted="minikube")


def test_kind_says_which_tools_are_missing(tool: Tool) -> None:
    tool("docker", "")
    with pytest.raises(ClusterError, match="CLUSTER=kind needs kind, not found on PATH"):
        KindCluster().up()


def test_kind_leaves_a_cluster_that_is_there(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMASERVE_CLUSTER", "mine")
    tool("docker", "")
    calls = tool("kind", '[ "$1" = get ] && echo mine; exit 0')
    KindCluster().up()
    assert "create" not in calls.read_text()


def test_kind_makes_a_cluster_and_leaves_the_persons_kubeconfig_alone(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMASERVE_CLUSTER", "mine")
    tool("docker", "")
    calls = tool("kind", "exit 0")
    KindCluster().up()
    kubeconfig = tmp_path / "cache" / "kind-mine" / "kubeconfig"
    created, exported = [call for call in noted(calls) if not call.startswith("get")]
    assert created.startswith("create cluster --name mine")
    assert exported.startswith("export kubeconfig --name mine")
    assert f"--kubeconfig {kubeconfig}" in created
    assert f"--kubeconfig {kubeconfig}" in exported


def test_a_kind_cluster_has_the_local_clusters_nodes_as_workers() -> None:
    config = yaml.safe_load(kind_config(plan_nodes(list(range(8))), Path("/v")))
    plane, *workers = config["nodes"]
    assert plane == {"role": "control-plane"}
    assert [worker["labels"]["numaserve.dev/cpu-manager"] for worker in workers] == ["static", "static", "none"]
    patches = [yaml.safe_load(p) for worker in workers for p in worker.get("kubeadmConfigPatches", [])]
    assert {p["kind"] for p in patches} == {"JoinConfiguration"}
    arguments = [p["nodeRegistration"]["kubeletExtraArgs"] for p in patches]
    assert [a["reserved-cpus"] for a in arguments] == ["0-3", "4-7"]
    assert {a["cpu-manager-policy"] for a in arguments} == {"static"}


def test_every_kind_worker_mounts_the_folder_of_volumes() -> None:
    config = yaml.safe_load(kind_config(plan_nodes([0, 1]), Path("/v")))
    mounts = [worker["extraMounts"][0]["hostPath"] for worker in config["nodes"][1:]]
    assert mounts == ["/v"] * 3


def test_ones_own_cluster_needs_a_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGISTRY", raising=False)
    with pytest.raises(ClusterError, match="CLUSTER=current needs REGISTRY=host/path"):
        CurrentCluster().up()


def test_ones_own_cluster_must_answer(tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY", "registry.example/team")
    tool("kubectl", "exit 1")
    cached_helm(tmp_path)
    with pytest.raises(ClusterError, match="does not answer"):
        CurrentCluster().up()


def test_a_volume_of_ones_own_cluster_is_filled_through_a_pod(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STORAGE_CLASS", raising=False)
    calls = tool("kubectl", "exit 0")
    cached_helm(tmp_path)
    CurrentCluster().volume("models", "team", tmp_path)
    apply, wait, copy, delete = noted(calls)
    assert apply == "apply -f -"
    assert wait.startswith("-n team wait --for=condition=Ready pod/models-loader")
    assert copy == f"cp {tmp_path}/. team/models-loader:/volume"
    assert delete == "-n team delete pod models-loader --wait=false"


def cached_helm(tmp_path: Path) -> None:
    """helm is looked up in the cache; an empty file keeps it from being built."""
    folder = tmp_path / "cache" / "bin" / "helm-v3.22.0"
    folder.mkdir(parents=True)
    (folder / "helm").touch()


def claim(text: str) -> dict[str, object]:
    documents = yaml.safe_load_all(text)
    spec: dict[str, object] = next(d for d in documents if d["kind"] == "PersistentVolumeClaim")["spec"]
    return spec


def test_the_default_storage_class_is_asked_for_a_volume_of_one_node() -> None:
    spec = claim(volumes.claim_with_loader("models", "team", "busybox"))
    assert spec["accessModes"] == ["ReadWriteOnce"]
    assert "storageClassName" not in spec


def test_a_named_storage_class_is_asked_for_a_volume_of_many_nodes() -> None:
    spec = claim(volumes.claim_with_loader("models", "team", "busybox", "nfs"))
    assert (spec["accessModes"], spec["storageClassName"]) == (["ReadWriteMany"], "nfs")


def test_a_local_volume_is_kept_for_its_claim() -> None:
    volume, wanted = yaml.safe_load_all(volumes.manifests("models", "team", Path("/v/team/models")))
    assert volume["spec"]["claimRef"] == {"namespace": "team", "name": "models"}
    assert wanted["spec"]["volumeName"] == volume["metadata"]["name"] == "team-models"
    assert volume["spec"]["hostPath"]["path"] == "/v/team/models"
    assert wanted["spec"]["storageClassName"] == ""  # no provisioner may answer instead


def test_only_ready_nodes_are_counted() -> None:
    listed = json.loads(
        """{"items": [
        {"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        {"metadata": {"name": "b"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
        {"metadata": {"name": "c"}, "status": {}}]}"""
    )
    assert ready_nodes(listed) == {"a"}


def test_clients_are_stopped_before_the_servers_they_use() -> None:
    names = ["etcd", "kube-apiserver", "kube-proxy", "containerd-node-a", "kubelet-node-a"]
    assert stop_order(names) == ["kubelet-node-a", "containerd-node-a", "kube-proxy", "kube-apiserver", "etcd"]
