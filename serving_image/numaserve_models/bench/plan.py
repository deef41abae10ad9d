"""How often each rung is called at each length, and which rungs are alive together. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST, MOST = 3, 100
"""Calls of a rung at a length: fewer say nothing, and a hundred are what a p99 needs."""

Costs = Mapping[int, Mapping[str, float]]
"""Seconds of one call by length and rung."""


@dataclass(frozen=True, slots=True)
class Turns:
    """At one length: in each of ``rounds`` rounds every rung is called ``bursts[rung]`` times in a row."""

    rounds: int
    bursts: Mapping[str, int]

    def calls(self, rung: str) -> int:
        """Timed calls of a rung."""
        return self.rounds * self.bursts[rung]


def shares(wants: Sequence[float], total: float) -> list[float]:
    """Split ``total`` so that nobody gets more than it wants, and what one leaves goes to the others in equal parts."""
    given = [0.0] * len(wants)
    left = max(total, 0.0)
    order = sorted(range(len(wants)), key=lambda i: wants[i])
    for place, index in enumerate(order):
        given[index] = min(wants[index], left / (len(order) - place))
        left -= given[index]
    return given


def plan(costs: Costs, budget: float, rounds: int) -> dict[int, Turns]:
    """Calls by length: 100 where the budget allows, never fewer than 3, in at most ``rounds`` rounds.

    ``budget`` is in seconds over all lengths and rungs; the least number of calls is made even where it does not suffice.
    """
    cells = [(length, rung) for length, rungs in costs.items() for rung in rungs]
    seconds = [max(costs[length][rung], 1e-6) for length, rung in cells]
    given = shares([MOST * s for s in seconds], budget)
    calls = {
        cell: min(MOST, max(LEAST, math.floor(g / s * (1 + 1e-9))))
        for cell, g, s in zip(cells, given, seconds, strict=True)
    }
    return {length: _turns({rung: calls[length, rung] for rung in costs[length]}, rounds) for length in costs}


def _turns(calls: Mapping[str, int], rounds: int) -> Turns:
    """As many rounds as the slowest rung is called; the others are called more often in each."""
    count = max(1, min(rounds, min(calls.values(), default=1)))
    # Rounded down, except where that would miss the hundred by less than a round.
    bursts = {rung: math.ceil(n / count) if n == MOST else max(1, n // count) for rung, n in calls.items()}
    return Turns(count, bursts)


def groups(peaks: Mapping[str, int], baseline: str, limit: int) -> list[list[str]]:
    """Rungs that are alive together, the baseline first in each group: their peak memory fits ``limit`` bytes.

    A rung that does not fit beside the baseline even alone still gets a group of the two.
    """
    made: list[list[str]] = []
    room = 0
    for rung in (name for name in peaks if name != baseline):
        if not made or peaks[rung] > room:
            made.append([baseline])
            room = limit - peaks[baseline]
        made[-1].append(rung)
        room -= peaks[rung]
    return made or [[baseline]]


def order(names: Sequence[str], turn: int) -> list[str]:
    """The order within a round: each round begins with another rung, and every second one runs backwards."""
    start = turn % len(names)
    turned = [*names[start:], *names[:start]]
    return turned[::-1] if turn % 2 else turned
