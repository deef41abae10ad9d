"""Gate runs in the background, a bounded number at once; a restart simply runs them again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numaserve_operator.controller import metrics
from numaserve_operator.controller.ports import ClusterPort
from numaserve_operator.controller.tokens import Tokens
from numaserve_operator.domain.errors import OperatorError, Transient
from numaserve_operator.domain.plan import GateRequest
from numaserve_operator.gates.client import ProbeClient
from numaserve_operator.gates.run import run_gate

logger = logging.getLogger(__name__)


RETRY_SECONDS = 10.0


@dataclass
class GateRunner:
    """At most ``limit`` gate runs at once, one a resource; each result is stored, then its key enqueued."""

    cluster: ClusterPort
    probe: ProbeClient
    tokens: Tokens
    enqueue: Callable[[str], None]
    limit: int = 4
    _tasks: dict[str, tuple[str, asyncio.Task[None]]] = field(default_factory=dict)
    _slots: asyncio.Semaphore | None = None

    def running(self, parent_key: str) -> str | None:
        """Key of the gate run under way for a resource."""
        entry = self._tasks.get(parent_key)
        return entry[0] if entry and not entry[1].done() else None

    def start(self, parent_key: str, parent_uid: str, request: GateRequest) -> None:
        """Start a run unless the same is under way; another one for the resource is cancelled."""
        if self.running(parent_key) == request.key:
            return
        self.cancel(parent_key)
        task = asyncio.create_task(self._run(parent_key, parent_uid, request), name=f"gate {parent_key}")
        self._tasks[parent_key] = (request.key, task)

    def cancel(self, parent_key: str) -> None:
        """Stop a run whose candidate is no longer wanted."""
        entry = self._tasks.pop(parent_key, None)
        if entry:
            entry[1].cancel()

    async def close(self) -> None:
        """Stop every run."""
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, parent_key: str, parent_uid: str, request: GateRequest) -> None:
        self._slots = self._slots or asyncio.Semaphore(self.limit)
        async with self._slots:
            result = await run_gate(request, self.probe, self.tokens.of(parent_uid), self._configmap)
        metrics.GATES.labels(result.verdict.value).inc()
        logger.info("gate of %s: %s %s: %s", request.replicaset, result.verdict, result.reason, result.message)
        try:
            await self.cluster.store_result(request.namespace, request.replicaset, request.replicaset_uid, result)
        except OperatorError as error:
            logger.warning("gate result of %s was not stored, the gate runs again: %s", request.replicaset, error)
            # Not at once: a comparison loads the stable pod.
            await asyncio.sleep(RETRY_SECONDS)
        # Freed before the key is enqueued, so that the reconcile it causes may start a new run.
        if self.running(parent_key) == request.key:
            self._tasks.pop(parent_key, None)
        self.enqueue(parent_key)

    async def _configmap(self, namespace: str, name: str) -> Mapping[str, Any]:
        found = await self.cluster.configmap(namespace, name)
        if found is None:
            raise Transient(f"ConfigMap {namespace}/{name} went away while it was compared")
        return found
