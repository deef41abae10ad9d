"""etcd, API server, controller manager and scheduler.

Used twice: inside the local cluster, and alone on loopback for the integration tests, which need a
real API server and real controllers but no node.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from localcluster import binaries, flags, kubeconfig, packages
from localcluster.certs import Authority
from localcluster.flags import Endpoints
from localcluster.processes import Processes
from localcluster.shell import direct_environment, succeeds

KUBERNETES_SERVICE = "10.96.0.1"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


@dataclass
class ControlPlane:
    """A control plane in one folder; a context manager that stops and removes what it started.

    >>> with ControlPlane.temporary() as plane:
    ...     print(plane.kubeconfig)
    """

    root: Path
    endpoints: Endpoints
    processes: Processes
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
        """Start everything and wait until the API server is ready and the controllers act."""
        packages.install("etcd-server")
        authority = self.authority
        admin = authority.issue("admin", "numaserve-admin", ("system:masters",))
        kubeconfig.write(self.kubeconfig, self.endpoints.server, authority, admin)
        self.processes.start("etcd", flags.etcd(self.endpoints, self.root / "etcd"))
        self._start_api(authority)
        self._start_manager(authority)
        if self.scheduler:
            self._start_scheduler(authority)
        # Made by a controller: without it the API server refuses every pod of the namespace.
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._wait("kube-controller-manager", account, 60)

    def stop(self) -> None:
        """Stop everything; a temporary control plane leaves nothing behind."""
        for name in reversed(COMPONENTS):
            self.processes.stop(name)
        if self._owned:
            shutil.rmtree(self.root, ignore_errors=True)

    def ready(self) -> bool:
        """Whether the API server says it is ready."""
        return self._answers("/readyz")

    def _start_api(self, authority: Authority) -> None:
        hosts = (self.endpoints.address, "127.0.0.1", KUBERNETES_SERVICE, "localhost", "kubernetes.default.svc")
        identity = flags.ApiIdentity(
            authority.ca.cert,
            authority.issue("apiserver", "kube-apiserver", hosts=hosts),
            authority.service_account_keys(),
            authority.issue("apiserver-kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",)),
        )
        words = flags.api_server(self.endpoints, identity, endpoint_reconciler=self.endpoint_reconciler)
        self.processes.start("kube-apiserver", [binaries.kubernetes() / "kube-apiserver", *words])
        self._wait("kube-apiserver", "/readyz", 60)

    def _start_manager(self, authority: Authority) -> None:
        client = self._client(authority, "kube-controller-manager")
        key = authority.service_account_keys().key
        words = flags.controller_manager(self.endpoints, client, key, authority.ca.cert)
        self.processes.start("kube-controller-manager", [binaries.kubernetes() / "kube-controller-manager", *words])

    def _start_scheduler(self, authority: Authority) -> None:
        words = flags.scheduler(self.endpoints, self._client(authority, "kube-scheduler"))
        self.processes.start("kube-scheduler", [binaries.kubernetes() / "kube-scheduler", *words])

    def _client(self, authority: Authority, name: str) -> Path:
        pair = authority.issue(name, f"system:{name}")
        return kubeconfig.write(self.root / f"{name}.kubeconfig", self.endpoints.server, authority, pair)

    def _wait(self, name: str, path: str, seconds: float) -> None:
        running = tuple(c for c in COMPONENTS if c in self.processes.names())
        self.processes.wait_for(name, lambda: self._answers(path), seconds, f"{self.endpoints.server}{path}", running)

    def _answers(self, path: str) -> bool:
        kubectl = str(binaries.kubernetes() / "kubectl")
        words = [kubectl, "--kubeconfig", str(self.kubeconfig), "--request-timeout=5s", "get", "--raw", path]
        return succeeds(self.in_namespace(words), timeout=10, env=direct_environment())
