"""Which cluster is meant: the local one, a kind cluster, or the one the person's kubeconfig names (CLUSTER=…)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import yaml

from localcluster import binaries, images, volumes
from localcluster.cluster import Cluster, Step, quiet
from localcluster.errors import ClusterError
from localcluster.paths import cache_root, cluster_name
from localcluster.shell import run, succeeds


class Target(Protocol):
    """What `Product` and the demo need of a cluster."""

    @property
    def description(self) -> str: ...
    @property
    def operator_selector(self) -> Mapping[str, str]: ...
    def up(self) -> None: ...
    def down(self) -> None: ...
    def enter(self, command: Sequence[str | Path]) -> list[str]: ...
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
        if not os.environ.get("REGISTRY"):
            raise ClusterError(
                "CLUSTER=current needs REGISTRY=host/path, a registry that this cluster pulls from and you may push to"
            )
        if not succeeds([*self.enter([_kubectl()]), "version"]):
            raise ClusterError("the cluster of your kubeconfig does not answer: check `kubectl version`")

    def down(self) -> None:
        """Remove what the demo made; the cluster itself is the person's."""
        self.kubectl("delete", "namespace", "team-support", "--ignore-not-found")
        run(
            [binaries.helm(), "uninstall", "numaserve", "-n", "numaserve-system", "--ignore-not-found"],
            env=self.environment(),
        )

    def enter(self, command: Sequence[str | Path]) -> list[str]:
        """The command itself: there is no namespace to enter."""
        return [str(word) for word in command]

    def environment(self) -> dict[str, str]:
        """The person's environment with kubectl and helm on PATH."""
        folders = [str(binaries.helm().parent), os.environ.get("PATH", "")]
        return {**os.environ, "PATH": ":".join(folders)}

    def kubectl(self, *words: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Run kubectl with the person's kubeconfig."""
        return run(self.enter([_kubectl(), *words]), stdin=stdin, timeout=timeout, env=self.environment())

    def load_images(self, references: Mapping[str, str]) -> Mapping[str, str]:
        """Push the images to REGISTRY; the references the cluster pulls."""
        return {name: images.push(ref, os.environ["REGISTRY"]) for name, ref in references.items()}

    def volume(self, name: str, namespace: str, source: Path | None = None) -> None:
        """A claim of the default storage class, filled through a pod."""
        self.kubectl(
            "apply",
            "-f",
            "-",
            stdin=volumes.claim_with_loader(name, namespace, os.environ.get("LOADER_IMAGE", "busybox")),
        )
        self.kubectl(
            "-n", namespace, "wait", "--for=condition=Ready", f"pod/{name}-loader", "--timeout=180s", timeout=200
        )
        if source:
            self.kubectl("cp", f"{source}/.", f"{namespace}/{name}-loader:/volume", timeout=600)
        self.kubectl("-n", namespace, "delete", "pod", f"{name}-loader", "--wait=false")


@dataclass
class KindCluster(CurrentCluster):
    """A kind cluster whose workers have a static CPU manager. Needs Docker and kind."""

    description: str = "A kind cluster: two workers with a static CPU manager"
    operator_selector: Mapping[str, str] = field(default_factory=lambda: {"numaserve.dev/cpu-manager": "none"})
    step: Step = quiet

    def up(self) -> None:
        """Create the cluster unless it is there."""
        for tool in ("docker", "kind"):
            if not shutil.which(tool):
                raise ClusterError(f"CLUSTER=kind needs {tool}, which is not installed")
        if cluster_name() in run(["kind", "get", "clusters"]).split():
            return
        with self.step("kind cluster with static CPU managers"):
            config = cache_root() / "kind.yaml"
            config.write_text(kind_config(os.cpu_count() or 2))
            run(
                ["kind", "create", "cluster", "--name", cluster_name(), "--config", config, "--wait", "180s"],
                timeout=600,
            )

    def down(self) -> None:
        """Delete the cluster."""
        run(["kind", "delete", "cluster", "--name", cluster_name()])

    def load_images(self, references: Mapping[str, str]) -> Mapping[str, str]:
        """Load the archives into the nodes."""
        for ref in references.values():
            run(["kind", "load", "image-archive", images.archive_of(ref), "--name", cluster_name()], timeout=600)
        return references

    def enter(self, command: Sequence[str | Path]) -> list[str]:
        """kubectl runs with kind's context; nothing else needs to enter anything."""
        words = [str(word) for word in command]
        return [words[0], "--context", f"kind-{cluster_name()}", *words[1:]] if words[0] == _kubectl() else words


def kind_config(cpus: int) -> str:
    """kind configuration: one control plane, two workers that pin and reserve each other's half of the CPUs."""
    low, high = f"0-{max(cpus // 2 - 1, 0)}", f"{cpus // 2}-{cpus - 1}"

    def worker(reserved: str) -> dict[str, object]:
        kubelet = {
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "cpuManagerPolicy": "static",
            "topologyManagerPolicy": "single-numa-node",
            "reservedSystemCPUs": reserved,
        }
        return {
            "role": "worker",
            "labels": {"numaserve.dev/cpu-manager": "static"},
            "kubeadmConfigPatches": [yaml.safe_dump(kubelet)],
        }

    plane = {"role": "control-plane", "labels": {"numaserve.dev/cpu-manager": "none"}}
    return yaml.safe_dump(
        {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [plane, worker(low), worker(high)]}
    )


def _kubectl() -> str:
    return shutil.which("kubectl") or str(binaries.kubernetes() / "kubectl")
