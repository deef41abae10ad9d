"""Timing candidates against each other: in turns, half of them dropped after each round, within the budget."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from numaserve_models.bench.stats import P99_NEEDS
from numaserve_models.errors import ExportError
from numaserve_models.recommend.decide import Candidate, Goal, halve

FINALISTS = 3
PASSES = 2
"""Turns of each candidate in a round: what slows the machine for a while slows all of them."""
CALLS = 5
"""Most calls of a turn."""
LEAST = 0.05
"""Seconds of a length in a turn at least: where loading took the turn's share, calls that are short are made all the same."""
FINAL_CALLS = 3 * P99_NEEDS
"""Calls of finalists at lengths that decide: a p99 of a hundred is its second longest."""
OTHER_CALLS = 10
"""Calls of finalists at lengths that decide nothing: for the report."""


class Caller(Protocol):
    """Runs one text; the model is loaded and warm at that length before it is timed."""

    def __call__(self, candidate: Candidate, length: int, times: int) -> list[float]:
        """Seconds of each call. Raises ExportError where the candidate cannot run."""
        ...


@dataclass(slots=True)
class Race:
    """Candidates, their timings, and why those that left did."""

    goal: Goal
    call: Caller
    now: Callable[[], float]
    deadline: float
    progress: Callable[[str], None] = lambda _: None
    timings: dict[Candidate, dict[int, list[float]]] = field(default_factory=dict)
    left: dict[Candidate, str] = field(default_factory=dict)

    def run(self, candidates: Sequence[Candidate]) -> None:
        """Time everybody, then the better half, and so on; the last few until a p99 can be told or time is over."""
        alive = list(candidates)
        self.timings = {candidate: {} for candidate in alive}
        number = 0
        while len(alive) > FINALISTS and self._time():
            number += 1
            self.progress(f"round {number}: {len(alive)} candidates")
            self._round(alive, self.now() + (self.deadline - self.now()) / 2, number)
            alive = self._drop(alive, number)
        self.progress(f"final: {', '.join(candidate.name for candidate in alive)}")
        self._final(alive)

    def _round(self, alive: list[Candidate], end: float, number: int) -> None:
        for turn in range(PASSES):
            start = (number + turn) % len(alive)
            order = alive[start:] + alive[:start]
            for place, candidate in enumerate(order):
                remaining = (PASSES - turn) * len(order) - place
                self._turn(candidate, max(0.0, end - self.now()) / remaining)

    def _turn(self, candidate: Candidate, seconds: float) -> None:
        share = max(LEAST, seconds / len(self.goal.deciding))
        for length in self.goal.deciding:
            if self._guess(candidate, length) is None and self._time():
                self._call(candidate, length, 1)
            guess = self._guess(candidate, length)
            if guess is None or guess > share or not self._time():
                return
            self._call(candidate, length, min(CALLS, int(share / guess)))

    def _final(self, alive: Sequence[Candidate]) -> None:
        wanted = dict.fromkeys(self.goal.lengths, OTHER_CALLS) | dict.fromkeys(self.goal.deciding, FINAL_CALLS)
        todo = True
        while todo and self._time():
            todo = False
            for candidate in alive:
                for length in (*self.goal.deciding, *(n for n in wanted if n not in self.goal.deciding)):
                    missing = wanted[length] - self._calls(candidate, length)
                    guess = self._guess(candidate, length) or 0.0
                    if missing > 0 and candidate not in self.left and self.now() + guess < self.deadline:
                        self._call(candidate, length, min(CALLS, missing))
                        todo = True

    def _drop(self, alive: list[Candidate], number: int) -> list[Candidate]:
        standing = [c for c in alive if c not in self.left]
        kept = set(halve(standing, self.timings, self.goal)) if standing else set()
        for candidate in standing:
            if candidate not in kept:
                self.left[candidate] = f"slower than others after round {number}"
        return [c for c in standing if c in kept]

    def _call(self, candidate: Candidate, length: int, times: int) -> None:
        if candidate in self.left:
            return
        try:
            self.timings[candidate].setdefault(length, []).extend(self.call(candidate, length, times))
        except ExportError as error:
            self.left[candidate] = str(error)
            self.timings[candidate].clear()

    def _guess(self, candidate: Candidate, length: int) -> float | None:
        """Seconds of a call: as measured, or from the longest shorter length in proportion."""
        known = {n: t for n, t in self.timings[candidate].items() if t and n <= length}
        if not known:
            return None
        longest = max(known)
        return statistics.median(known[longest]) * length / longest

    def _calls(self, candidate: Candidate, length: int) -> int:
        return len(self.timings[candidate].get(length, ()))

    def _time(self) -> bool:
        return self.now() < self.deadline
