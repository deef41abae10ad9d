"""One node: a containerd and a kubelet of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localcluster import binaries, cgroups, kubeconfig, render
from localcluster.certs import Authority
from localcluster.errors import ClusterError
from localcluster.machine import NodeSpec
from localcluster.paths import Layout
from localcluster.processes import Processes
from localcluster.shell import run, succeeds


def image_digest(listing: str, reference: str) -> str | None:
    """The digest of an image in the output of `ctr images ls`; None when it is not listed."""
    rows = [line.split() for line in listing.splitlines()]
    return next((row[2] for row in rows if row and row[0] == reference), None)


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

    def stop_kubelet(self) -> None:
        """Stop the kubelet; its pods keep running, and after 40 s the node is NotReady."""
        self.processes.stop(f"kubelet-{self.spec.name}")

    def stop(self) -> None:
        """Stop the kubelet, then containerd; pods keep running until `down` ends their cgroup."""
        self.stop_kubelet()
        self.processes.stop(f"containerd-{self.spec.name}")

    def load(self, archive: Path, reference: str) -> str:
        """Import a docker-archive into this node's image store; the reference by digest.

        An archive brings only the tag. The name by digest is added, so that the runtime resolves both and
        reports the digest as the pod's imageID, as it does for an image pulled from a registry.
        """
        self._images("import", "--snapshotter", "overlayfs", str(archive))
        by_digest = self.by_digest(reference)
        if by_digest is None:
            raise ClusterError(f"{archive} holds no image {reference}: delete the file and build the images again")
        self._images("tag", "--force", reference, by_digest)
        return by_digest

    def by_digest(self, reference: str) -> str | None:
        """NAME@sha256:… of an image the node has."""
        digest = image_digest(self._images("ls", f"name=={reference}"), reference)
        return digest and f"{reference.rpartition(':')[0]}@{digest}"

    def has_image(self, reference: str) -> bool:
        """Whether the node's runtime already has the image."""
        return self.by_digest(reference) is not None

    def _images(self, *words: str) -> str:
        return run([*self._ctr(), "-n", "k8s.io", "images", *words], timeout=300)

    def forget_cpu_state(self) -> None:
        """Remove the CPU manager's checkpoint, as an administrator does after a topology change."""
        (self.root / "kubelet" / "cpu_manager_state").unlink(missing_ok=True)

    def _ctr(self) -> list[str]:
        return ["ctr", "--address", str(self.socket)]
