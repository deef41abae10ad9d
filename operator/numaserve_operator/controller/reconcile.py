"""reconcile(key): gather, decide, apply. Level-triggered: it never asks what happened, only what is."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from numaserve_operator.builders.assemble import plan as make_plan
from numaserve_operator.controller.apply import apply_plan
from numaserve_operator.controller.gate_runner import GateRunner
from numaserve_operator.controller.gather import Gatherer
from numaserve_operator.controller.ports import ClusterPort
from numaserve_operator.domain.errors import Terminating
from numaserve_operator.gates.client import ProbeClient

logger = logging.getLogger(__name__)


@dataclass
class Reconciler:
    """One pass over one resource."""

    cluster: ClusterPort
    gatherer: Gatherer
    gates: GateRunner
    probe: ProbeClient

    async def reconcile(self, key: str) -> float | None:
        """Bring one resource closer to its spec. Returns seconds until it must be looked at again, if ever.

        Raises Transient, Conflict or Terminal; the caller decides when to come again.
        """
        namespace, _, name = key.partition("/")
        raw = await self.cluster.parent(namespace, name)
        if raw is None or "deletionTimestamp" in raw["metadata"]:
            self.gates.cancel(key)
            return None
        try:
            return await self._pass(key, raw)
        except Terminating:
            logger.info("namespace of %s is being deleted: its objects go with it", key)
            self.gates.cancel(key)
            return None

    async def _pass(self, key: str, raw: dict[str, object]) -> float | None:
        snapshot = await self.gatherer.gather(raw, self.gates.running(key))
        parent = snapshot.parent
        wanted = make_plan(snapshot)
        token_of = self.gatherer.tokens.of(parent.uid)
        writes = await apply_plan(wanted, raw, parent, self.cluster, self.probe, token_of)
        if wanted.cancel_gate:
            self.gates.cancel(key)
        elif wanted.gate:
            self.gates.start(key, parent.uid, wanted.gate)
        if writes:
            logger.info("reconciled %s: %d writes", key, writes)
        return wanted.requeue_after
