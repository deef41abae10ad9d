"""The operator's process: kopf runs it, watches the resources and answers liveness; the rest is ours.

kopf's handlers do nothing but enqueue a key: no finalizers, no annotations, no timers, so a stopped
operator never blocks a delete.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kopf
from prometheus_client import start_http_server

from numaserve_api import names
from numaserve_operator.controller.metrics import REGISTRY
from numaserve_operator.controller.operator import Operator
from numaserve_operator.controller.tokens import Tokens
from numaserve_operator.domain.snapshot import ArtifactCache, Defaults
from numaserve_operator.gates.client import HttpProbe
from numaserve_operator.kube.api import Api
from numaserve_operator.kube.gateway import Gateway
from numaserve_operator.kube.lease import lead

logger = logging.getLogger(__name__)
STALLED_SECONDS = 600.0
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the process is told at its start."""

    serving_image: str
    operator_namespace: str
    namespace: str | None = None
    kubeconfig: str | None = None
    workers: int = 8
    drain_seconds: float = 10.0
    threads_per_core: int = 1
    metrics_port: int = 9090
    health_port: int = 8081
    lease: bool = True
    artifact_cache: ArtifactCache | None = None


def own_namespace() -> str:
    """The namespace of the operator's pod; `numaserve-system` outside one."""
    try:
        return _NAMESPACE_FILE.read_text().strip()
    except OSError:
        return os.environ.get("NUMASERVE_OPERATOR_NAMESPACE", "numaserve-system")


class Process:
    """One operator process around kopf's event loop."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.operator: Operator | None = None
        self.task: asyncio.Task[None] | None = None
        self.failed = False

    def enqueue(self, namespace: str, name: str) -> None:
        """Note a changed resource; before the Lease is held there is nothing to do with it."""
        if self.operator:
            self.operator.queue.add(f"{namespace}/{name}")

    async def start(self) -> None:
        """Start working in kopf's loop."""
        start_http_server(self.settings.metrics_port, registry=REGISTRY)
        self.task = asyncio.create_task(self._guarded(), name="operator")

    async def stop(self) -> None:
        """Stop working; whatever was under way is continued by the next start."""
        if self.task:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)

    def alive(self) -> bool:
        """Whether watches still make progress; kopf's liveness endpoint asks."""
        watches = self.operator.watches if self.operator else ()
        return all(time.monotonic() - w.last_progress < STALLED_SECONDS for w in watches)

    async def _guarded(self) -> None:
        try:
            await self._run()
        except asyncio.CancelledError:
            raise
        except BaseException:
            logger.exception("the operator stopped working")
        # Without work this process is only in the way of its successor.
        self.failed = True
        os.kill(os.getpid(), signal.SIGTERM)

    async def _run(self) -> None:
        settings = self.settings
        api = await Api.connect(settings.kubeconfig)
        probe = HttpProbe()
        try:
            if settings.lease:
                identity = f"{socket.gethostname()}-{os.getpid()}"
                await lead(api, settings.operator_namespace, identity, lambda: self._work(api, probe))
            else:
                await self._work(api, probe)
        finally:
            await probe.close()
            await api.close()

    async def _work(self, api: Api, probe: HttpProbe) -> None:
        settings = self.settings
        gateway = Gateway(api)
        key = await gateway.probe_key(settings.operator_namespace)
        defaults = Defaults(
            settings.serving_image,
            settings.operator_namespace,
            drain_seconds=settings.drain_seconds,
            threads_per_core=settings.threads_per_core,
            artifact_cache=settings.artifact_cache,
        )
        self.operator = Operator(gateway, probe, Tokens(key), defaults, settings.namespace, settings.workers)
        try:
            await self.operator.run()
        finally:
            self.operator = None


def registry_of(process: Process) -> kopf.OperatorRegistry:
    """kopf's handlers: start, stop, liveness, and the thin watch of the resources."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        return _in_pod(kopf.login_with_service_account(**kwargs)) or kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.watching.server_timeout = 240
        settings.watching.client_timeout = 300
        settings.watching.connect_timeout = 10
        settings.scanning.disabled = True
        await process.start()

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await process.stop()

    @kopf.on.probe(id="watches", registry=registry)
    def watches(**_: Any) -> str:
        if not process.alive():
            raise RuntimeError(f"a watch has made no progress for {STALLED_SECONDS:.0f} s")
        return "ok"

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, registry=registry)
    def changed(namespace: str | None, name: str | None, **_: Any) -> None:
        process.enqueue(namespace or "", name or "")

    return registry


def _in_pod(found: kopf.ConnectionInfo | None) -> kopf.ConnectionInfo | None:
    """The API server by address: kopf asks for it by name, and a cluster may have no DNS."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if found is None or host is None:
        return found
    return replace(found, server=f"https://{f'[{host}]' if ':' in host else host}:{port}")


def run(settings: Settings) -> int:
    """Run until told to stop; exit code 1 when work ended by itself."""
    # kopf names itself after the user, which a container's arbitrary uid does not have.
    os.environ.setdefault("LOGNAME", names.FIELD_MANAGER)
    process = Process(settings)
    namespaces = [settings.namespace] if settings.namespace else []
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    kopf.run(
        registry=registry_of(process),
        clusterwide=settings.namespace is None,
        namespaces=namespaces,
        standalone=True,
        liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz",
        stop_flag=stop,
    )
    return int(process.failed)
