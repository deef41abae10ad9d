"""Which candidates are tried further and which one is recommended. Pure: timings and cosines in, a choice out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from numaserve_api.config import Scheme
from numaserve_models.bench.stats import Latency, latency
from numaserve_models.quantize.bounds import Agreement, Bounds

FEW = 5
"""Calls below which a median says little."""
NEAR = 0.05
"""Candidates within this of the fastest are told apart by accuracy: timings repeat no better."""


@dataclass(frozen=True, slots=True, order=True)
class Candidate:
    """One way to deploy: scheme, what is left in floating point, and threads."""

    threads: int
    scheme: Scheme
    activations: Literal["f32", "bf16"]

    @property
    def variant(self) -> tuple[Scheme, str]:
        """What decides the answers: threads do not."""
        return self.scheme, self.activations

    @property
    def name(self) -> str:
        """`int8-weights, bf16, 2 threads`."""
        return f"{self.scheme}, {self.activations}, {self.threads} thread{'s' if self.threads > 1 else ''}"


Timings = Mapping[Candidate, Mapping[int, Sequence[float]]]
"""Seconds of calls with one text, by candidate and length in tokens."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be met: ``p99`` seconds at ``length`` tokens; without it, tokens a second and thread over ``lengths``."""

    lengths: tuple[int, ...]
    length: int
    p99: float | None = None

    @property
    def deciding(self) -> tuple[int, ...]:
        """Lengths whose timings decide, ascending."""
        return (self.length,) if self.p99 is not None else self.lengths


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidate that meets the bounds, or None; ``words`` says why, or what is missed by how much; ``nearest`` came closest."""

    candidate: Candidate | None
    nearest: Candidate | None
    words: str


def ladder(cores: int) -> tuple[int, ...]:
    """Thread counts worth trying: each up to 4, then two a doubling, and all cores."""
    steps = [*range(1, 5), *(n * 2**k for k in range(1, 12) for n in (3, 4))]
    return tuple(sorted({n for n in steps if n < cores} | {cores}))


def variants(
    schemes: Sequence[Scheme], hints: Sequence[Literal["f32", "bf16"]]
) -> list[tuple[Scheme, Literal["f32", "bf16"]]]:
    """Schemes with the hints that make a difference: scheme none with bf16 is what scheme bf16 is."""
    found: list[tuple[Scheme, Literal["f32", "bf16"]]] = []
    for scheme in schemes:
        if scheme is Scheme.NONE:
            found.append((scheme, "f32"))
        elif scheme is Scheme.BF16:
            found.append((scheme, "bf16"))
        else:
            found.extend((scheme, hint) for hint in hints)
    return found


def rate(candidate: Candidate, timings: Mapping[int, Sequence[float]], lengths: Sequence[int]) -> float:
    """Tokens a second and thread, geometric mean over ``lengths``; 0 where one was not measured."""
    if not lengths or any(not timings.get(n) for n in lengths):
        return 0.0
    logs = [math.log(n / statistics.median(timings[n]) / candidate.threads) for n in lengths]
    return math.exp(statistics.fmean(logs))


def common(timings: Timings, alive: Sequence[Candidate], lengths: Sequence[int]) -> list[int]:
    """Deciding lengths that everybody who was measured at all was measured at."""
    measured = [timings[c] for c in alive if timings.get(c)]
    return [n for n in lengths if measured and all(t.get(n) for t in measured)]


def halve(alive: Sequence[Candidate], timings: Timings, goal: Goal) -> list[Candidate]:
    """The better half, never empty. With a bound, the fewest threads come first among those that may meet it.

    The fastest always stays: it is what meets the bound if anything does.
    """
    keep = math.ceil(len(alive) / 2)
    lengths = common(timings, alive, goal.deciding)
    if goal.p99 is None:
        return sorted(alive, key=lambda c: (-rate(c, timings.get(c, {}), lengths), c))[:keep]
    bound = goal.p99
    medians = {c: statistics.median(t) if (t := timings.get(c, {}).get(goal.length)) else math.inf for c in alive}
    fastest = min(alive, key=lambda c: (medians[c], c))

    def order(candidate: Candidate) -> tuple[float, ...]:
        may = medians[candidate] <= bound
        return (0, candidate.threads, medians[candidate]) if may else (1, medians[candidate], candidate.threads)

    kept = sorted(alive, key=lambda c: (order(c), c))[:keep]
    return kept if fastest in kept else [*kept[: keep - 1], fastest]


def choose(timings: Timings, accuracy: Mapping[tuple[Scheme, str], Agreement], goal: Goal) -> Choice:
    """The fewest threads that meet the latency bound, or the most tokens a second and thread."""
    alive = [c for c in timings if any(timings[c].values())]
    if not alive:
        return Choice(None, None, "no candidate was measured within the budget: give it more seconds with --budget")
    return _fastest(timings, accuracy, goal, alive) if goal.p99 is None else _cheapest(timings, accuracy, goal, alive)


def _cheapest(
    timings: Timings, accuracy: Mapping[tuple[Scheme, str], Agreement], goal: Goal, alive: Sequence[Candidate]
) -> Choice:
    bound, length = goal.p99 or math.inf, goal.length
    found = {c: latency(t) for c in alive if (t := timings[c].get(length))}
    if not found:
        return Choice(None, None, f"no candidate was measured at {length} tokens: give it more seconds with --budget")
    meets = [c for c in found if found[c].tail <= bound]
    if not meets:
        nearest = min(found, key=lambda c: (found[c].tail, c))
        tail = found[nearest]
        over = tail.tail - bound
        words = (
            f"nothing meets {bound * 1e3:g} ms at {length} tokens: {tail.tail_name} of {nearest.name} is "
            f"{tail.tail * 1e3:.3g} ms, {over * 1e3:.3g} ms too long"
        )
        return Choice(None, nearest, words)
    fewest = min(c.threads for c in meets)
    equals = [c for c in meets if c.threads == fewest]
    best = min(found[c].p50 for c in equals)
    chosen = _most_accurate([c for c in equals if found[c].p50 <= best * (1 + NEAR)], accuracy)
    return Choice(chosen, chosen, _met(chosen, found[chosen], goal))


def _met(chosen: Candidate, found: Latency, goal: Goal) -> str:
    doubt = "" if found.tail_name == "p99" else "; too few calls for a p99: give it more seconds with --budget"
    return (
        f"{chosen.name}: {found.tail_name} {found.tail * 1e3:.3g} ms at {goal.length} tokens, "
        f"{(goal.p99 or 0) * 1e3:g} ms are allowed, and nothing with fewer threads met that{doubt}"
    )


def _fastest(
    timings: Timings, accuracy: Mapping[tuple[Scheme, str], Agreement], goal: Goal, alive: Sequence[Candidate]
) -> Choice:
    lengths = common(timings, alive, goal.deciding)
    rates = {c: rate(c, timings[c], lengths) for c in alive}
    best = max(rates.values())
    chosen = _most_accurate([c for c in alive if rates[c] >= best / (1 + NEAR)], accuracy)
    fewest = min((len(timings[chosen][n]) for n in lengths), default=0)
    doubt = f"; {fewest} call(s) at {len(lengths)} of {len(goal.lengths)} lengths are few: give it more seconds with --budget"
    words = f"{chosen.name}: {rates[chosen]:,.0f} tokens a second and thread, mean over {', '.join(map(str, lengths))} tokens"
    return Choice(chosen, chosen, words + (doubt if fewest < FEW or len(lengths) < len(goal.lengths) else ""))


def _most_accurate(near: Sequence[Candidate], accuracy: Mapping[tuple[Scheme, str], Agreement]) -> Candidate:
    return min(near, key=lambda c: (c.threads, -round(accuracy[c.variant].mean, 4), c))


def shortfall(found: Agreement, bounds: Bounds) -> str | None:
    """Which accuracy bound is missed and by how much; None where both hold."""
    parts = [
        f"{name} cosine {value:.4f}, {bound:g} is asked ({bound - value:.4f} too low)"
        for name, value, bound in (("mean", found.mean, bounds.mean), ("worst", found.worst, bounds.worst))
        if not value >= bound
    ]
    return "; ".join(parts) or None
