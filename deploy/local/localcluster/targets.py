"""Which cluster is meant: the local one, a kind cluster, or the one the person's kubeconfig names (CLUSTER=…)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import yaml

from localcluster import binaries, images, machine, volumes
from localcluster.cluster import Cluster, Step, quiet, ready_nodes
from localcluster.errors import ClusterError
from localcluster.machine import NodeSpec
from localcluster.paths import cache_root, cluster_name
from localcluster.shell import run, succeeds

LOADER_IMAGE = "busybox:1.37"
KIND_VOLUMES = "/numaserve-volumes"
DEMO_LABEL = "numaserve.dev/demo"
"""On namespaces we made, so that `down` never deletes one that was there before."""


class Target(Protocol):
    """What `Product` and the demo need of a cluster."""

    @property
    def description(self) -> str: ...
    @property
    def operator_selector(self) -> Mapping[str, str]: ...
    def up(self) -> None: ...
    def down(self) -> None: ...
    def enter(self, command: Sequence[str | Path]) -> list[str]: ...
    def execute(self, command: Sequence[str]) -> int: ...
    def status(self) -> Iterator[tuple[str, str]]: ...
    def environment(self) -> dict[str, str]: ...
    def kubectl(self, *words: str, stdin: str | None = None, timeout: float = 120) -> str: ...
    def load_images(self, references: Mapping[str, str]) -> Mapping[str, str]: ...
    def volume(self, name: str, namespace: str, source: Path | None = None) -> None: ...


def target_of(step: Step = quiet, wanted: str | None = None) -> Target:
    """The target CLUSTER names: `local` (default), `kind` or `current`. Raises ClusterError for another word."""
    kind = wanted or os.environ.get("CLUSTER") or "local"
    makers: dict[str, Callable[[], Target]] = {
        "local": lambda: Cluster(step=step),
        "kind": lambda: KindCluster(step=step),
        "current": CurrentCluster,
    }
    if kind not in makers:
        raise ClusterError(f"CLUSTER={kind} is unknown: use local, kind or current")
    return makers[kind]()


@dataclass
class CurrentCluster:
    """The cluster of the person's own kubeconfig; images go to the registry REGISTRY names."""

    description: str = "The cluster of your kubeconfig"
    operator_selector: Mapping[str, str] = field(default_factory=dict)

    def up(self) -> None:
        """Nothing to start: check that it answers, and that a registry is named."""
        _registry()
        if not succeeds([_kubectl(), "version", "--request-timeout=15s"], env=self.environment()):
            raise ClusterError("the cluster of your kubeconfig does not answer: see what `kubectl version` says")

    def down(self) -> None:
        """Remove what the demo made; the cluster itself is the person's."""
        self.kubectl("delete", "namespace", "-l", f"{DEMO_LABEL}=true", "--ignore-not-found")
        run(
            [binaries.helm(), "uninstall", "numaserve", "-n", "numaserve-system", "--ignore-not-found"],
            env=self.environment(),
        )

    def enter(self, command: Sequence[str | Path]) -> list[str]:
        """The command itself: there is no namespace to enter."""
        return [str(word) for word in command]

    def environment(self) -> dict[str, str]:
        """The person's environment with kubectl and helm on PATH."""
        folders = [os.environ.get("PATH", ""), str(Path(_kubectl()).parent), str(binaries.helm().parent)]
        return {**os.environ, "PATH": ":".join(folders)}

    def run_in_netns(self, command: Sequence[str | Path], timeout: float = 900) -> str:
        """Run a command with kubectl and helm on PATH; its output. Nothing is entered."""
        return run(command, env=self.environment(), timeout=timeout)

    def execute(self, command: Sequence[str]) -> int:
        """Run a command with the terminal attached; its exit code."""
        return subprocess.run(self.enter(command), env=self.environment(), check=False).returncode

    def status(self) -> Iterator[tuple[str, str]]:
        """The nodes and whether they are ready; the components are not ours."""
        listed = json.loads(self.kubectl("get", "nodes", "-o", "json"))
        ready = ready_nodes(listed)
        for node in listed["items"]:
            name = node["metadata"]["name"]
            yield name, "Ready" if name in ready else "NotReady"

    def kubectl(self, *words: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Run kubectl with the person's kubeconfig."""
        return run(self.enter([_kubectl(), *words]), stdin=stdin, timeout=timeout, env=self.environment())

    def load_images(self, references: Mapping[str, str]) -> Mapping[str, str]:
        """Push the images to REGISTRY; the references the cluster pulls."""
        return {name: images.push(ref, _registry()) for name, ref in references.items()}

    def volume(self, name: str, namespace: str, source: Path | None = None) -> None:
        """A claim, filled through a pod that mounts it meanwhile.

        The default storage class's volumes mount on one node at a time. STORAGE_CLASS names one whose volumes
        mount on many, which two revisions on different nodes need.
        """
        image = os.environ.get("LOADER_IMAGE", LOADER_IMAGE)
        documents = volumes.claim_with_loader(name, namespace, image, os.environ.get("STORAGE_CLASS"))
        self.kubectl("apply", "-f", "-", stdin=documents)
        pod = f"{name}-loader"
        self.kubectl("-n", namespace, "wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=180s", timeout=200)
        if source:
            self.kubectl("cp", f"{source}/.", f"{namespace}/{pod}:/volume", timeout=600)
        self.kubectl("-n", namespace, "delete", "pod", pod, "--wait=false")


@dataclass
class KindCluster(CurrentCluster):
    """A kind cluster whose workers have a static CPU manager. Needs Docker and kind."""

    description: str = "A kind cluster: two workers with a static CPU manager"
    operator_selector: Mapping[str, str] = field(default_factory=lambda: {"numaserve.dev/cpu-manager": "none"})
    step: Step = quiet

    @property
    def folder(self) -> Path:
        """State on this machine: kind's configuration, the kubeconfig, and the folder every node mounts."""
        return cache_root() / f"kind-{cluster_name()}"

    def up(self) -> None:
        """Create the cluster unless it is there."""
        self._need_tools()
        (self.folder / "volumes").mkdir(parents=True, exist_ok=True)
        if cluster_name() not in run(["kind", "get", "clusters"]).split():
            with self.step("kind cluster with static CPU managers"):
                self._create()
        run(["kind", "export", "kubeconfig", "--name", cluster_name(), "--kubeconfig", self._kubeconfig])

    def down(self) -> None:
        """Delete the cluster and what it kept on this machine."""
        self._need_tools()
        run(["kind", "delete", "cluster", "--name", cluster_name(), "--kubeconfig", self._kubeconfig])
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """As for the person's own cluster, with kind's kubeconfig: theirs is left alone."""
        return {**super().environment(), "KUBECONFIG": str(self._kubeconfig)}

    def load_images(self, references: Mapping[str, str]) -> Mapping[str, str]:
        """Load the archives into the nodes."""
        for ref in references.values():
            run(["kind", "load", "image-archive", images.archive_of(ref), "--name", cluster_name()], timeout=600)
        return references

    def volume(self, name: str, namespace: str, source: Path | None = None) -> None:
        """A volume in the folder that every node mounts, so that any node can carry either revision."""
        here = self.folder / "volumes" / namespace / name
        here.mkdir(parents=True, exist_ok=True)
        if source:
            shutil.copytree(source, here, dirs_exist_ok=True)
        there = Path(KIND_VOLUMES) / namespace / name
        self.kubectl("apply", "-f", "-", stdin=volumes.manifests(name, namespace, there))

    @property
    def _kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def _need_tools(self) -> None:
        missing = [tool for tool in ("docker", "kind") if not shutil.which(tool)]
        if missing:
            raise ClusterError(
                f"CLUSTER=kind needs {' and '.join(missing)}, not found on PATH: install it, "
                "or leave CLUSTER out for the local cluster, which needs neither"
            )

    def _create(self) -> None:
        config = self.folder / "kind.yaml"
        config.write_text(kind_config(machine.plan_nodes(list(range(os.cpu_count() or 1))), self.folder / "volumes"))
        where: list[str | Path] = ["--config", config, "--kubeconfig", self._kubeconfig]
        run(["kind", "create", "cluster", "--name", cluster_name(), "--wait", "180s", *where], timeout=600)


def kind_config(nodes: Sequence[NodeSpec], volumes_folder: Path) -> str:
    """kind configuration: a control plane, which kind taints, and each of our nodes as a worker.

    A kind node sees every CPU of the machine, so the workers reserve each other's half, as the local nodes do.
    """
    return yaml.safe_dump(
        {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "nodes": [{"role": "control-plane"}, *(_kind_worker(node, volumes_folder) for node in nodes)],
        }
    )


def _kind_worker(node: NodeSpec, volumes_folder: Path) -> dict[str, object]:
    document: dict[str, object] = {
        "role": "worker",
        "labels": {"numaserve.dev/cpu-manager": node.policy},
        "extraMounts": [{"hostPath": str(volumes_folder), "containerPath": KIND_VOLUMES, "readOnly": True}],
    }
    if node.policy == "static":
        # A worker takes the cluster's KubeletConfiguration when it joins: its own settings go on the command line.
        arguments = {
            "cpu-manager-policy": "static",
            "topology-manager-policy": "single-numa-node",
            "reserved-cpus": node.reserved,
        }
        join = {"kind": "JoinConfiguration", "nodeRegistration": {"kubeletExtraArgs": arguments}}
        document["kubeadmConfigPatches"] = [yaml.safe_dump(join)]
    return document


def _kubectl() -> str:
    return shutil.which("kubectl") or str(binaries.kubernetes() / "kubectl")


def _registry() -> str:
    registry = os.environ.get("REGISTRY")
    if not registry:
        raise ClusterError(
            "CLUSTER=current needs REGISTRY=host/path, a registry that this cluster pulls from and you may push to"
        )
    return registry
