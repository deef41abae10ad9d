"""etcd, API server, controller manager and scheduler.

Used twice: inside the local cluster, and alone on loopback for the integration tests, which need a
real API server and real controllers but no node.
"""

from __future__ import annotations

import http.client
import shutil
import socket
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from localcluster import binaries, kubeconfig
from localcluster.certs import Authority
from localcluster.processes import Processes
from localcluster.shell import succeeds

SERVICE_CIDR = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"


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


@dataclass
class ControlPlane:
    """A control plane in one folder; a context manager that stops and removes what it started.

    >>> with ControlPlane.temporary() as plane:
    ...     print(plane.kubeconfig)
    """

    root: Path
    endpoints: Endpoints
    processes: Processes
    kubelet_https: bool = False
    scheduler: bool = False
    endpoint_reconciler: bool = False
    in_namespace: Callable[[list[str]], list[str]] = field(default=lambda words: words)
    _owned: bool = False

    @classmethod
    def temporary(cls) -> ControlPlane:
        """A control plane of its own on free loopback ports, in a temporary folder, no root needed."""
        root = Path(tempfile.mkdtemp(prefix="numaserve-api-"))
        return cls(root, Endpoints.free(), Processes(root / "pids", root / "logs"), _owned=True)

    @property
    def kubeconfig(self) -> Path:
        """Administrator's kubeconfig (group system:masters)."""
        return self.root / "kubeconfig"

    @property
    def authority(self) -> Authority:
        return Authority(self.root / "certs")

    def __enter__(self) -> ControlPlane:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and wait until the API server is ready."""
        authority = self.authority
        admin = authority.issue("admin", "numaserve-admin", ("system:masters",))
        kubeconfig.write(self.kubeconfig, self.endpoints.server, authority, admin)
        self._start_etcd()
        self._start_api(authority)
        self._start_manager(authority)
        if self.scheduler:
            self._start_scheduler(authority)

    def stop(self) -> None:
        """Stop everything; a temporary control plane leaves nothing behind."""
        for name in ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd"):
            self.processes.stop(name)
        if self._owned:
            shutil.rmtree(self.root, ignore_errors=True)

    def _start_etcd(self) -> None:
        e = self.endpoints
        peer = f"http://{e.address}:{e.etcd_peer_port}"
        self.processes.start(
            "etcd",
            [
                "etcd", "--data-dir", self.root / "etcd", "--listen-client-urls", e.etcd,
                "--advertise-client-urls", e.etcd, "--listen-peer-urls", peer,
                "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                "--unsafe-no-fsync", "--logger", "zap",
            ],
        )  # fmt: skip

    def _start_api(self, authority: Authority) -> None:
        e = self.endpoints
        serving = authority.issue(
            "apiserver", "kube-apiserver",
            hosts=(e.address, "127.0.0.1", KUBERNETES_SERVICE, "localhost", "kubernetes", "kubernetes.default.svc"),
        )  # fmt: skip
        kubelet_client = authority.issue(
            "apiserver-kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",)
        )
        accounts = authority.service_account_keys()
        flags = [
            f"--etcd-servers={e.etcd}", f"--bind-address={e.address}", f"--advertise-address={e.address}",
            f"--secure-port={e.api_port}", f"--service-cluster-ip-range={SERVICE_CIDR}",
            f"--client-ca-file={authority.ca.cert}", f"--tls-cert-file={serving.cert}",
            f"--tls-private-key-file={serving.key}", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            f"--service-account-key-file={accounts.cert}", f"--service-account-signing-key-file={accounts.key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--kubelet-client-certificate={kubelet_client.cert}", f"--kubelet-client-key={kubelet_client.key}",
            f"--kubelet-certificate-authority={authority.ca.cert}",
            "--kubelet-preferred-address-types=InternalIP", "--profiling=false",
        ]  # fmt: skip
        if not self.endpoint_reconciler:
            flags.append("--endpoint-reconciler-type=none")  # loopback is no endpoint a pod could reach
        self.processes.start("kube-apiserver", [binaries.kubernetes() / "kube-apiserver", *flags])
        self.processes.wait_for("kube-apiserver", self.ready, 60, f"{e.server}/readyz")

    def _start_manager(self, authority: Authority) -> None:
        config = self._client(authority, "kube-controller-manager", "system:kube-controller-manager")
        flags = [
            f"--kubeconfig={config}", f"--service-account-private-key-file={authority.service_account_keys().key}",
            f"--root-ca-file={authority.ca.cert}", "--use-service-account-credentials=true",
            f"--bind-address={self.endpoints.address}", f"--secure-port={self.endpoints.manager_port}",
            "--leader-elect=false", "--profiling=false",
        ]  # fmt: skip
        self.processes.start("kube-controller-manager", [binaries.kubernetes() / "kube-controller-manager", *flags])

    def _start_scheduler(self, authority: Authority) -> None:
        config = self._client(authority, "kube-scheduler", "system:kube-scheduler")
        flags = [
            f"--kubeconfig={config}", f"--bind-address={self.endpoints.address}",
            f"--secure-port={self.endpoints.scheduler_port}", "--leader-elect=false", "--profiling=false",
        ]  # fmt: skip
        self.processes.start("kube-scheduler", [binaries.kubernetes() / "kube-scheduler", *flags])

    def _client(self, authority: Authority, name: str, user: str) -> Path:
        return kubeconfig.write(
            self.root / f"{name}.kubeconfig", self.endpoints.server, authority, authority.issue(name, user)
        )

    def ready(self) -> bool:
        """Whether the API server says it is ready."""
        if self.in_namespace(["true"]) != ["true"]:
            kubectl = str(binaries.kubernetes() / "kubectl")
            words = self.in_namespace([kubectl, "--kubeconfig", str(self.kubeconfig), "get", "--raw", "/readyz"])
            return succeeds(words, timeout=10)
        return self._ready_on_loopback()

    def _ready_on_loopback(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.authority.ca.cert))
        admin = self.authority.issue("admin", "numaserve-admin", ("system:masters",))
        context.load_cert_chain(admin.cert, admin.key)
        connection = http.client.HTTPSConnection(
            self.endpoints.address, self.endpoints.api_port, timeout=5, context=context
        )
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
