"""What is said of timings and answers. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

P99_NEEDS = 100
"""Calls below which a p99 would be the maximum under another name."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of one call. ``tail`` is the p99 where ``n`` allows it, else the maximum."""

    p50: float
    tail: float
    n: int

    @property
    def tail_name(self) -> str:
        """What ``tail`` is."""
        return "p99" if self.n >= P99_NEEDS else f"max of {self.n}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times faster than the baseline: median and quartiles over rounds, in each of which both ran."""

    median: float
    low: float
    high: float
    rounds: int


def latency(seconds: Sequence[float]) -> Latency:
    """Median and tail of at least one call."""
    tail = float(np.quantile(seconds, 0.99)) if len(seconds) >= P99_NEEDS else max(seconds)
    return Latency(float(statistics.median(seconds)), tail, len(seconds))


def ratio(baseline: Sequence[Sequence[float]], ours: Sequence[Sequence[float]]) -> Ratio:
    """Paired by round: the baseline's median call over ours. Rounds that only one of the two finished are left out."""
    pairs = [(statistics.median(b), statistics.median(o)) for b, o in zip(baseline, ours, strict=False) if b and o]
    if not pairs:
        return Ratio(math.nan, math.nan, math.nan, 0)
    found = [b / o for b, o in pairs]
    low, middle, high = (float(np.quantile(found, q)) for q in (0.25, 0.5, 0.75))
    return Ratio(middle, low, high, len(found))


def drift(cosine: float) -> float:
    """1 − cosine, and never below zero by rounding."""
    return max(0.0, 1.0 - cosine)
