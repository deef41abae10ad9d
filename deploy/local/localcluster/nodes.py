"""One node: a containerd and a kubelet of its own."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from localcluster import binaries, cgroups, kubeconfig, render
from localcluster.certs import Authority
from localcluster.machine import NodeSpec
from localcluster.paths import Layout
from localcluster.processes import Processes
from localcluster.shell import run, succeeds


@dataclass(frozen=True, slots=True)
class Node:
    """Starts, stops and feeds one node."""

    spec: NodeSpec
    layout: Layout
    processes: Processes

    @property
    def root(self) -> Path:
        return self.layout.node(self.spec.name)

    @property
    def socket(self) -> Path:
        return self.layout.containerd_socket(self.spec.name)

    @property
    def cgroup(self) -> str:
        return f"{self.layout.cgroup}/{self.spec.name}"

    def start_containerd(self) -> None:
        """Start containerd and wait until it answers."""
        name = f"containerd-{self.spec.name}"
        conf = self.root / "cni"
        conf.mkdir(parents=True, exist_ok=True)
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        (conf / "10-numaserve.conflist").write_text(render.cni(self.spec, str(self.root / "ipam")))
        config = self.root / "containerd.toml"
        state = str(self.socket.parent / "state")
        config.write_text(render.containerd(str(self.root / "containerd"), state, str(self.socket), str(conf)))
        self.processes.start(name, ["containerd", "--config", config, "--log-level", "warn"])
        self.processes.wait_for(name, lambda: succeeds([*self._ctr(), "version"], 5), 30, "containerd's socket")

    def start_kubelet(self, server: str, authority: Authority) -> None:
        """Start the kubelet; it registers the node by itself."""
        spec = self.spec
        cgroups.create(self.cgroup)
        user = f"system:node:{spec.name}"
        pair = authority.issue(f"kubelet-{spec.name}", user, ("system:nodes",), hosts=(spec.address, spec.name))
        client = kubeconfig.write(self.root / "kubelet.kubeconfig", server, authority, pair)
        config = self.root / "kubelet.yaml"
        config.write_text(
            render.kubelet(
                spec,
                ca=str(authority.ca.cert),
                cert=str(pair.cert),
                key=str(pair.key),
                socket=str(self.socket),
                pod_logs=str(self.root / "pod-logs"),
                cgroup=self.cgroup,
            )
        )
        self.processes.start(
            f"kubelet-{spec.name}",
            [
                binaries.kubernetes() / "kubelet",
                f"--config={config}",
                f"--kubeconfig={client}",
                f"--hostname-override={spec.name}",
                f"--node-ip={spec.address}",
                f"--root-dir={self.root / 'kubelet'}",
                f"--cert-dir={self.root / 'kubelet-certs'}",
                f"--node-labels=numaserve.dev/cpu-manager={spec.policy}",
            ],
        )

    def stop(self) -> None:
        """Stop the kubelet, then containerd; pods keep running until `down` ends their cgroup."""
        self.processes.stop(f"kubelet-{self.spec.name}")
        self.processes.stop(f"containerd-{self.spec.name}")

    def load(self, archive: Path) -> None:
        """Import a docker-archive into this node's image store."""
        run([*self._ctr(), "-n", "k8s.io", "images", "import", "--snapshotter", "overlayfs", archive], timeout=300)

    def has_image(self, reference: str) -> bool:
        """Whether the node's runtime already has the image."""
        return bool(run([*self._ctr(), "-n", "k8s.io", "images", "ls", "-q", f"name=={reference}"]).strip())

    def forget_cpu_state(self) -> None:
        """Remove the CPU manager's checkpoint, as an administrator does after a topology change."""
        (self.root / "kubelet" / "cpu_manager_state").unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete the node's files; mounts below must be gone."""
        shutil.rmtree(self.root, ignore_errors=True)

    def _ctr(self) -> list[str]:
        return ["ctr", "--address", str(self.socket)]
