"""The keyed work queue: one worker a key, no key twice, earliest time wins, failures back off.

Shape: client-go's rate limiting work queue (k8s.io/client-go/util/workqueue).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

BASE_SECONDS = 0.2
MAX_SECONDS = 120.0


@dataclass
class KeyedQueue:
    """Keys due now or later. ``clock`` is monotonic seconds; ``jitter`` gives a factor in [0.5, 1)."""

    clock: Callable[[], float]
    jitter: Callable[[], float] = field(default=lambda: random.uniform(0.5, 1.0))  # noqa: S311 -- spreads retries
    _due: dict[str, float] = field(default_factory=dict)
    _heap: list[tuple[float, int, str]] = field(default_factory=list)
    _busy: set[str] = field(default_factory=set)
    _failures: dict[str, int] = field(default_factory=dict)
    _order: itertools.count[int] = field(default_factory=itertools.count)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, key: str, after: float = 0.0) -> None:
        """Ask for a key ``after`` seconds; of several wishes for one key the earliest wins."""
        due = self.clock() + after
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        if key not in self._busy:
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._changed.set()

    async def take(self) -> str:
        """The next due key; it is not given out again until `done`."""
        while True:
            key = self._pop()
            if key is not None:
                return key
            wait = self._heap[0][0] - self.clock() if self._heap else None
            self._changed.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _pop(self) -> str | None:
        while self._heap and self._heap[0][0] <= self.clock():
            due, _, key = heapq.heappop(self._heap)
            if key not in self._busy and self._due.get(key) == due:
                del self._due[key]
                self._busy.add(key)
                return key
        return None

    def done(self, key: str, failed: bool = False) -> None:
        """Give a key back; a failed one comes again by itself, later each time."""
        self._busy.discard(key)
        if failed:
            self._failures[key] = self._failures.get(key, 0) + 1
            self.add(key, self.backoff(key))
        else:
            self._failures.pop(key, None)
        if key in self._due:
            heapq.heappush(self._heap, (self._due[key], next(self._order), key))
            self._changed.set()

    def backoff(self, key: str) -> float:
        """Seconds until a failed key is tried again: doubling, bounded, jittered."""
        tries = min(self._failures.get(key, 0), 16)
        return min(BASE_SECONDS * 2.0**tries, MAX_SECONDS) * self.jitter()

    def __len__(self) -> int:
        return len(self._due)
