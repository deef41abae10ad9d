"""The whole local cluster: bring it up, take it down, load images, make volumes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localcluster import binaries, cgroups, images, leftovers, machine, mounts, network, packages, render, volumes
from localcluster.controlplane import ControlPlane
from localcluster.errors import ClusterError
from localcluster.flags import Endpoints
from localcluster.kubeconfig import write as write_kubeconfig
from localcluster.locks import exclusive
from localcluster.nodes import Node
from localcluster.paths import Layout
from localcluster.processes import Processes
from localcluster.shell import direct_environment, run

PATIENCE_SECONDS = 30.0
STOP_SECONDS = 3.0
"""How long `down` waits before it kills: nothing that a component could still write is kept."""

Step = Callable[[str], AbstractContextManager[object]]


def require_root() -> None:
    """Namespaces, mounts and cgroups are made by root only."""
    if os.geteuid() != 0:
        raise ClusterError("the local cluster makes network namespaces, mounts and cgroups: run this as root")


def stop_order(names: Sequence[str]) -> list[str]:
    """Clients before the servers they use: kubelets, everything else, API server, etcd."""
    last = ("kube-apiserver", "etcd")
    rank = {name: 1 + last.index(name) if name in last else 0 for name in names}
    return sorted(names, key=lambda name: (rank[name], not name.startswith("kubelet-"), name))


def ready_nodes(listed: Mapping[str, Any]) -> set[str]:
    """Names of the Ready nodes in a NodeList."""
    return {
        node["metadata"]["name"]
        for node in listed["items"]
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
    }


def quiet(_title: str) -> AbstractContextManager[object]:
    """A step that shows nothing."""
    return nullcontext()


@dataclass
class Cluster:
    """One named local cluster. `step` wraps each stage, so a terminal can show progress."""

    layout: Layout = field(default_factory=Layout.of)
    step: Step = quiet
    description: str = (
        "etcd, API server, controllers, two pinning kubelets and an ordinary one, in one network namespace"
    )

    @property
    def kubeconfig(self) -> Path:
        return self.layout.kubeconfig

    @property
    def netns(self) -> Path:
        return self.layout.netns

    @property
    def lock(self) -> Path:
        return self.layout.run.with_suffix(".lock")

    @property
    def processes(self) -> Processes:
        group = cgroups.tracking_group(f"{self.layout.cgroup}/{cgroups.SYSTEM}")
        return Processes(self.layout.pids, self.layout.logs, self.layout.netns, group)

    @property
    def nodes(self) -> list[Node]:
        return [Node(spec, self.layout, self.processes) for spec in machine.plan_nodes(machine.usable_cpus())]

    @property
    def plane(self) -> ControlPlane:
        return ControlPlane(
            self.layout.root,
            Endpoints(network.API_ADDRESS),
            self.processes,
            scheduler=True,
            endpoint_reconciler=True,
            in_namespace=lambda words: ["nsenter", f"--net={self.netns}", "--", *words],
        )

    def up(self) -> None:
        """Bring the cluster up; a healthy one is left as it is, a broken one is replaced."""
        require_root()
        with exclusive(self.lock):
            self._up()

    def _up(self) -> None:
        with self.step("Debian packages (containerd, runc, etcd, CNI, buildah)"):
            packages.install()
        with self.step(f"Kubernetes {binaries.KUBERNETES_VERSION} from Go modules"):
            binaries.kubernetes()
        if self.healthy():
            return
        self._down()
        with self.step("pause image"):
            images.pause()
        with self.step("network namespace"):
            self._prepare()
        with self.step("etcd, API server, controller manager, scheduler"):
            self.plane.start()
        with self.step("containerd and kubelets: node-a, node-b (pinning), node-c"):
            self._start_nodes()
        with self.step("kube-proxy"):
            self._start_proxy()
        with self.step("nodes ready"):
            self._wait_nodes()

    def down(self) -> None:
        """Remove every process, mount, cgroup, namespace and file of this cluster. Safe to run twice."""
        require_root()
        with exclusive(self.lock):
            self._down()

    def _down(self) -> None:
        for name in stop_order(self.processes.names()):
            self.processes.stop(name, STOP_SECONDS)
        cgroups.kill_all(self.layout.cgroup)
        leftovers.remove_shim_sockets(self.layout.run)
        leftovers.remove_cni_results(self.layout.run)
        mounts.unmount_below(self.layout.run)
        mounts.unmount_below(self.layout.root)
        network.remove(self.layout)
        cgroups.remove(self.layout.cgroup)
        for folder in (self.layout.run, self.layout.root):
            shutil.rmtree(folder, ignore_errors=True)

    def healthy(self) -> bool:
        """Whether every component we started is alive and every node is ready."""
        expected = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"}
        expected |= {f"{kind}-{n.spec.name}" for kind in ("containerd", "kubelet") for n in self.nodes}
        alive = {name for name in self.processes.names() if self.processes.pid(name)}
        return expected <= alive and self._become_ready(PATIENCE_SECONDS)

    def _become_ready(self, seconds: float) -> bool:
        """A busy machine makes a node NotReady for moments: that alone is no reason to replace a cluster."""
        deadline = time.monotonic() + seconds
        while not self._nodes_ready():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.5)
        return True

    def _prepare(self) -> None:
        for folder in (self.layout.root, self.layout.run, self.layout.volumes):
            folder.mkdir(parents=True, exist_ok=True)
        cgroups.create(f"{self.layout.cgroup}/{cgroups.SYSTEM}")
        network.create(self.layout, [n.spec for n in self.nodes])

    def _start_nodes(self) -> None:
        for node in self.nodes:
            node.start_containerd()
            node.load(images.archive_of(render.PAUSE_IMAGE), render.PAUSE_IMAGE)
            node.start_kubelet(self.plane.endpoints.server, self.plane.authority)

    def _start_proxy(self) -> None:
        authority = self.plane.authority
        pair = authority.issue("kube-proxy", "system:kube-proxy")
        client = write_kubeconfig(
            self.layout.root / "kube-proxy.kubeconfig", self.plane.endpoints.server, authority, pair
        )
        config = self.layout.root / "kube-proxy.yaml"
        node = self.nodes[-1].spec
        config.write_text(render.kube_proxy(str(client), node.address, node.name))
        self.processes.start("kube-proxy", [binaries.kubernetes() / "kube-proxy", f"--config={config}"])

    def _wait_nodes(self) -> None:
        last = f"kubelet-{self.nodes[-1].spec.name}"
        self.processes.wait_for(last, self._nodes_ready, 90, "three ready nodes", self.processes.names())

    def _nodes_ready(self) -> bool:
        return self._ready_nodes() == {node.spec.name for node in self.nodes}

    def _ready_nodes(self) -> set[str]:
        try:
            return ready_nodes(json.loads(self.kubectl("get", "nodes", "-o", "json", "--request-timeout=5s")))
        except ClusterError:
            return set()

    # What people and tests do with a running cluster.

    def enter(self, command: Sequence[str | Path]) -> list[str]:
        """The words that run a command inside the cluster's network namespace."""
        return ["nsenter", f"--net={self.netns}", "--", *(str(word) for word in command)]

    def environment(self) -> dict[str, str]:
        """Environment with kubectl and helm on PATH and KUBECONFIG set."""
        folders = [str(binaries.kubernetes()), str(binaries.helm().parent)]
        path = ":".join([*folders, os.environ.get("PATH", "")])
        return {**direct_environment(), "PATH": path, "KUBECONFIG": str(self.kubeconfig)}

    def kubectl(self, *words: str, stdin: str | None = None, timeout: float = 120) -> str:
        """Run kubectl as administrator and return its output."""
        kubectl = binaries.kubernetes() / "kubectl"
        command = self.enter([kubectl, f"--kubeconfig={self.kubeconfig}", *words])
        return run(command, stdin=stdin, timeout=timeout, env=direct_environment())

    def run_in_netns(self, command: Sequence[str | Path], timeout: float = 900) -> str:
        """Run a command in the namespace, kubectl and helm on PATH; its output, or ClusterError."""
        return run(self.enter(command), env=self.environment(), timeout=timeout)

    def node(self, name: str) -> Node:
        """One node by name."""
        return next(node for node in self.nodes if node.spec.name == name)

    def start_kubelet(self, name: str) -> None:
        """Start the kubelet of a node again after `node(name).stop_kubelet()`, and wait until it knows its pods.

        The node's Ready condition says nothing here: it stays True for 40 s without a kubelet.
        """
        self.node(name).start_kubelet(self.plane.endpoints.server, self.plane.authority)
        component = f"kubelet-{name}"
        self.processes.wait_for(component, lambda: self._knows_its_pods(name), 60, "the pods of its node")

    def _knows_its_pods(self, name: str) -> bool:
        selector = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}"
        try:
            bound, known = (self._uids(path) for path in (selector, f"/api/v1/nodes/{name}/proxy/pods"))
        except ClusterError:
            return False
        return bound <= known

    def _uids(self, path: str) -> set[str]:
        listed = json.loads(self.kubectl("get", "--raw", path))
        return {item["metadata"]["uid"] for item in listed["items"] or []}

    def execute(self, command: Sequence[str]) -> int:
        """Run a command in the namespace with the terminal attached; its exit code."""
        return subprocess.run(self.enter(command), env=self.environment(), check=False).returncode

    @property
    def operator_selector(self) -> Mapping[str, str]:
        """Labels of the nodes that carry the operator and clients: those that pin nothing."""
        return {"numaserve.dev/cpu-manager": "none"}

    def load_images(self, references: Mapping[str, str]) -> Mapping[str, str]:
        """Import images into the nodes that lack them: servers may run anywhere, the operator on the ordinary node."""
        wanted = [
            (node, ref)
            for name, ref in references.items()
            for node in self.nodes
            if name != "operator" or node.spec.policy == "none"
        ]
        missing = [(node, ref) for node, ref in wanted if not node.has_image(ref)]
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda pair: pair[0].load(images.archive_of(pair[1]), pair[1]), missing))
        return references

    def by_digest(self, references: Mapping[str, str]) -> Mapping[str, str]:
        """Loaded images by digest, a form the nodes resolve too: {name: NAME@sha256:…}."""
        ordinary = self.nodes[-1]
        found = {name: ordinary.by_digest(ref) for name, ref in references.items()}
        return {name: ref for name, ref in found.items() if ref}

    def volume(self, name: str, namespace: str, source: Path | None = None) -> None:
        """A PersistentVolume all nodes can mount, bound to a claim of the same name, optionally filled."""
        folder = self.layout.volumes / namespace / name
        folder.mkdir(parents=True, exist_ok=True)
        if source:
            shutil.copytree(source, folder, dirs_exist_ok=True)
        self.kubectl("apply", "-f", "-", stdin=volumes.manifests(name, namespace, folder))
        bound = "--for=jsonpath={.status.phase}=Bound"
        self.kubectl("-n", namespace, "wait", bound, f"pvc/{name}", "--timeout=30s")

    def status(self) -> Iterator[tuple[str, str]]:
        """Every component with its process id, or `dead` and where its log is; then the nodes."""
        names = self.processes.names()
        for name in names:
            pid = self.processes.pid(name)
            yield name, str(pid) if pid else f"dead, see {self.layout.logs / name}.log"
        ready = self._ready_nodes() if names else set()
        for node in self.nodes if names else []:
            yield node.spec.name, "Ready" if node.spec.name in ready else "NotReady"
