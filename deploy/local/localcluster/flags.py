"""Command lines of the control plane as pure functions of where it listens and what it is known by."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from localcluster.certs import Pair
from localcluster.network import SERVICE_CIDR


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the control plane listens."""

    address: str = "127.0.0.1"
    api_port: int = 6443
    etcd_port: int = 2379
    etcd_peer_port: int = 2380
    manager_port: int = 10257
    scheduler_port: int = 10259

    @classmethod
    def free(cls) -> Endpoints:
        """Ports nobody uses on loopback right now."""
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(5)]
        ports = [s.getsockname()[1] for s in sockets]
        for s in sockets:
            s.close()
        return cls("127.0.0.1", *ports)

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.api_port}"

    @property
    def etcd(self) -> str:
        return f"http://{self.address}:{self.etcd_port}"

    @property
    def etcd_peer(self) -> str:
        return f"http://{self.address}:{self.etcd_peer_port}"


@dataclass(frozen=True, slots=True)
class ApiIdentity:
    """What the API server serves as, trusts, signs with, and shows to kubelets."""

    authority: Path
    serving: Pair
    accounts: Pair
    kubelet_client: Pair


def etcd(e: Endpoints, data: Path) -> list[str]:
    """etcd of one member; fsync is off, since nothing here has to survive a power cut."""
    return [
        "etcd", "--data-dir", str(data), "--listen-client-urls", e.etcd, "--advertise-client-urls", e.etcd,
        "--listen-peer-urls", e.etcd_peer, "--initial-advertise-peer-urls", e.etcd_peer,
        "--initial-cluster", f"default={e.etcd_peer}", "--unsafe-no-fsync", "--logger", "zap",
    ]  # fmt: skip


def api_server(e: Endpoints, identity: ApiIdentity, *, endpoint_reconciler: bool) -> list[str]:
    """Default admission and NodeRestriction, Node and RBAC authorization, no audit.

    Without the reconciler the Service `kubernetes` gets no endpoint: loopback is none a pod could reach.
    """
    flags = [
        f"--etcd-servers={e.etcd}", f"--bind-address={e.address}", f"--advertise-address={e.address}",
        f"--secure-port={e.api_port}", f"--service-cluster-ip-range={SERVICE_CIDR}",
        f"--client-ca-file={identity.authority}", f"--tls-cert-file={identity.serving.cert}",
        f"--tls-private-key-file={identity.serving.key}", "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
        f"--service-account-key-file={identity.accounts.cert}",
        f"--service-account-signing-key-file={identity.accounts.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--kubelet-client-certificate={identity.kubelet_client.cert}",
        f"--kubelet-client-key={identity.kubelet_client.key}",
        f"--kubelet-certificate-authority={identity.authority}",
        "--kubelet-preferred-address-types=InternalIP", "--profiling=false",
    ]  # fmt: skip
    return flags if endpoint_reconciler else [*flags, "--endpoint-reconciler-type=none"]


def controller_manager(e: Endpoints, kubeconfig: Path, accounts_key: Path, authority: Path) -> list[str]:
    """Every controller that is on by default.

    The claim binder looks every 2 s instead of every 15 s: a claim made together with its volume is
    otherwise bound a quarter of a minute late whenever the binder sees the claim first. With 20 requests a
    second, the default, the controllers take 5 s to make their accounts.
    """
    return [
        f"--kubeconfig={kubeconfig}", f"--service-account-private-key-file={accounts_key}",
        f"--root-ca-file={authority}", "--use-service-account-credentials=true",
        "--pvclaimbinder-sync-period=2s", "--kube-api-qps=200", "--kube-api-burst=400",
        f"--bind-address={e.address}", f"--secure-port={e.manager_port}",
        "--leader-elect=false", "--profiling=false",
    ]  # fmt: skip


def scheduler(e: Endpoints, kubeconfig: Path) -> list[str]:
    """The default scheduler."""
    return [
        f"--kubeconfig={kubeconfig}", f"--bind-address={e.address}", f"--secure-port={e.scheduler_port}",
        "--leader-elect=false", "--profiling=false",
    ]  # fmt: skip
