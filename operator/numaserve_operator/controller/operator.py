"""The running operator: watches in, workers over the queue, a jittered full resync."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from numaserve_api import names
from numaserve_operator.controller import metrics
from numaserve_operator.controller.gate_runner import GateRunner
from numaserve_operator.controller.gather import Gatherer
from numaserve_operator.controller.ports import ClusterPort, Now, utc_now
from numaserve_operator.controller.queue import KeyedQueue
from numaserve_operator.controller.reconcile import Reconciler
from numaserve_operator.controller.reports import Reports
from numaserve_operator.controller.tokens import Tokens
from numaserve_operator.domain.errors import Conflict, OperatorError, Terminal
from numaserve_operator.domain.snapshot import Defaults
from numaserve_operator.gates.client import ProbeClient
from numaserve_operator.kube.gateway import Gateway
from numaserve_operator.kube.watches import Watch, child_watches, own_key

logger = logging.getLogger(__name__)
RESYNC_SECONDS = 600.0
TERMINAL_SECONDS = 30.0


@dataclass
class Operator:
    """Everything of one process, wired."""

    gateway: Gateway
    probe: ProbeClient
    tokens: Tokens
    defaults: Defaults
    namespace: str | None = None
    workers: int = 8
    now: Now = utc_now
    resync_seconds: float = RESYNC_SECONDS
    watch_parents: bool = False
    """Outside kopf (tests) the operator watches the resources itself."""
    queue: KeyedQueue = field(default_factory=lambda: KeyedQueue(time.monotonic))
    watches: Sequence[Watch] = ()

    def __post_init__(self) -> None:
        cluster: ClusterPort = self.gateway
        self.gates = GateRunner(cluster, self.probe, self.tokens, self.queue.add)
        gatherer = Gatherer(cluster, Reports(self.probe), self.tokens, self.defaults, self.now)
        self.reconciler = Reconciler(cluster, gatherer, self.gates, self.probe)

    async def run(self) -> None:
        """Run until cancelled."""
        self.watches = child_watches(self.gateway.api, self.namespace, self.queue.add)
        if self.watch_parents:
            own = Watch(self.gateway.api, names.KIND, self.namespace, None, own_key, self.queue.add)
            self.watches = [*self.watches, own]
        try:
            async with asyncio.TaskGroup() as group:
                for watch in self.watches:
                    group.create_task(watch.run(), name=f"watch {watch.kind}")
                for number in range(self.workers):
                    group.create_task(self._work(), name=f"worker {number}")
                group.create_task(self._resync(), name="resync")
        finally:
            await self.gates.close()

    async def _work(self) -> None:
        while True:
            key = await self.queue.take()
            metrics.QUEUE.set(len(self.queue))
            failed = await self._one(key)
            self.queue.done(key, failed)

    async def _one(self, key: str) -> bool:
        """Reconcile one key; true when it must come again soon because it failed."""
        with metrics.SECONDS.time():
            try:
                again = await self.reconciler.reconcile(key)
            except Conflict as error:
                logger.info("%s changed while it was worked on, reading again: %s", key, error)
                metrics.RECONCILES.labels("conflict").inc()
                return True
            except Terminal as error:
                logger.error("%s cannot be reconciled: %s", key, error)
                metrics.RECONCILES.labels("terminal").inc()
                self.queue.add(key, TERMINAL_SECONDS)
                return False
            except OperatorError as error:
                logger.warning("%s failed, trying again: %s", key, error)
                metrics.RECONCILES.labels("transient").inc()
                return True
            except Exception:
                # A bug in one resource's path must not stop the others.
                logger.exception("%s failed unexpectedly", key)
                metrics.RECONCILES.labels("unexpected").inc()
                return True
        metrics.RECONCILES.labels("done").inc()
        if again is not None:
            self.queue.add(key, again)
        return False

    async def _resync(self) -> None:
        while True:
            try:
                for raw in await self.gateway.parents(self.namespace):
                    self.queue.add(own_key(raw) or "", random.uniform(0, 1))  # noqa: S311 -- spreads load
            except OperatorError as error:
                logger.warning("resync failed: %s", error)
            await asyncio.sleep(self.resync_seconds * random.uniform(0.8, 1.0))  # noqa: S311
