"""From which length on the block-local form is the faster one: measured on this CPU, not guessed."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import openvino as ov

from numaserve_models.running import Runner

CANDIDATES = (256, 512, 1024, 2048, 4096, 8192)
ROUNDS = 5
STEP = 64
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Timing:
    """Median seconds of one text of ``tokens`` tokens in both forms, measured in turns."""

    tokens: int
    dense: float
    local: float


def measure(dense: ov.Model, local: ov.Model, max_tokens: int, threads: int, progress: Progress) -> list[Timing]:
    """Time both forms at growing lengths until the block-local one wins twice in a row."""
    precision = "bf16" if "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES") else "f32"
    runners = [Runner(form.clone(), precision, threads=threads) for form in (dense, local)]
    timings: list[Timing] = []
    for tokens in (c for c in CANDIDATES if c <= max_tokens):
        ids = np.full((1, tokens), 5, dtype=np.int64)
        mask = np.ones_like(ids)
        seconds: list[list[float]] = [[], []]
        for turn in range(ROUNDS + 1):
            for index, runner in enumerate(runners):
                begin = time.perf_counter()
                runner(ids, mask)
                if turn:  # the first one builds the kernels
                    seconds[index].append(time.perf_counter() - begin)
        timings.append(Timing(tokens, *(statistics.median(s) for s in seconds)))
        progress(
            f"switch: {tokens} tokens dense {timings[-1].dense * 1e3:.0f} ms, block-local {timings[-1].local * 1e3:.0f} ms"
        )
        if len(timings) >= 2 and all(t.local < t.dense for t in timings[-2:]):
            break
    return timings


def choose(timings: Sequence[Timing]) -> int | None:
    """The switch in tokens: between the last length where dense won and the next; None where it always won.

    Steps are coarse, so that two measurements on one machine seldom give two artifacts.
    """
    lost = [t.tokens for t in timings if t.local >= t.dense]
    won = [t.tokens for t in timings if t.local < t.dense and t.tokens > max(lost, default=0)]
    if not won:
        return None
    below = max((n for n in lost if n < won[0]), default=won[0] // 2)
    return max(STEP, round(math.sqrt(below * won[0]) / STEP) * STEP)
