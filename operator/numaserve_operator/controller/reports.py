"""Placement reports of pods: asked concurrently with a short patience, and remembered for a few seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from numaserve_api.probe import PlacementReport
from numaserve_operator.domain.errors import Transient
from numaserve_operator.domain.plan import PodTarget
from numaserve_operator.domain.snapshot import PodView
from numaserve_operator.gates.client import ProbeClient

MAX_AGE_SECONDS = 9.0
SILENCE_SECONDS = 60.0
LEAVING_AGE_SECONDS = 0.5
"""A pod that drains is asked almost every time: its open connections decide when it may go."""


@dataclass
class Reports:
    """Adds each running pod's own report to its view; an unanswered question is an error text, never a failure."""

    probe: ProbeClient
    clock: Callable[[], float] = time.monotonic
    _known: dict[tuple[str, int], tuple[float, PlacementReport]] = field(default_factory=dict)

    async def add(self, pods: Iterable[PodView], token_of: Callable[[str], str]) -> list[PodView]:
        """The same pods with ``report`` or ``report_error`` filled in."""
        return list(await asyncio.gather(*(self._with_report(pod, token_of) for pod in pods)))

    async def _with_report(self, pod: PodView, token_of: Callable[[str], str]) -> PodView:
        if pod.phase != "Running" or not pod.ip or pod.deleting:
            self._known.pop((pod.uid, pod.restarts), None)
            return pod
        known = self._known.get((pod.uid, pod.restarts))
        limit = LEAVING_AGE_SECONDS if pod.withdrawn_at else MAX_AGE_SECONDS
        if known and known[1].ready == pod.ready and self.clock() - known[0] < limit:
            return replace(pod, report=known[1])
        target = PodTarget(pod.name, pod.uid, pod.ip, pod.revision)
        try:
            report = await self.probe.placement(target, token_of(pod.revision))
        except Transient as error:
            # A moment's silence of a ready pod changes nothing; a longer one means it proves nothing any more.
            recent = known and pod.ready and self.clock() - known[0] < SILENCE_SECONDS
            return replace(pod, report_error=str(error), report=known[1] if known and recent else None)
        self._known[pod.uid, pod.restarts] = (self.clock(), report)
        self._forget()
        return replace(pod, report=report)

    def _forget(self) -> None:
        if len(self._known) > 10_000:
            cutoff = self.clock() - 10 * MAX_AGE_SECONDS
            self._known = {uid: entry for uid, entry in self._known.items() if entry[0] > cutoff}
