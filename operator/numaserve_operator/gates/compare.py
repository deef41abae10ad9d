"""Comparing two sets of vectors of the same texts. Pure numpy; NaN never passes.

Every comparison is written ``not (value >= threshold)`` so that NaN fails it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from numaserve_api.conditions import Reason
from numaserve_api.resource import CosineGate, GateValue

Vectors = npt.NDArray[np.float32]
NORM_RATIO_LIMIT = 1.05
"""Norms of both revisions must agree within 5 %: a lost normalisation shows here, not in the cosine."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a comparison failed."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class CosineStatistics:
    """Minimum, first percentile and mean of cosines [n]; ``worst`` is the index of the smallest."""

    minimum: float
    p1: float
    mean: float
    worst: int
    count: int


def cosines(a: Vectors, b: Vectors) -> npt.NDArray[np.float64]:
    """Cosine of each pair of rows of two [n, d] arrays, float64 [n]; NaN where a row has no direction."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
        values = np.einsum("nd,nd->n", left, right) / norms
    clipped: npt.NDArray[np.float64] = np.clip(values, -1.0, 1.0)
    return clipped


def statistics(values: npt.NDArray[np.float64]) -> CosineStatistics:
    """Statistics of cosines [n], n ≥ 1. The first percentile is a sample that occurred, never interpolated up."""
    if np.isnan(values).any():
        worst = int(np.flatnonzero(np.isnan(values))[0])
        return CosineStatistics(math.nan, math.nan, math.nan, worst, len(values))
    p1 = float(np.quantile(values, 0.01, method="lower"))
    return CosineStatistics(float(values.min()), p1, float(values.mean()), int(values.argmin()), len(values))


def check_shape(candidate: Vectors, baseline: Vectors) -> Finding | None:
    """Whether two answers can be compared at all: count, dimension, finite, a direction, the same norm."""
    if candidate.shape != baseline.shape:
        return Finding(
            Reason.SHAPE_MISMATCH,
            f"candidate answers {candidate.shape[0]} vectors of dimension {candidate.shape[1]}, "
            f"the baseline {baseline.shape[0]} of dimension {baseline.shape[1]}",
        )
    return check_health(candidate) or _check_norms(candidate, baseline)


def check_health(vectors: Vectors) -> Finding | None:
    """Whether every vector is finite and has a direction."""
    broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if broken.size:
        return Finding(
            Reason.NOT_FINITE,
            f"{broken.size} of {len(vectors)} vectors hold NaN or infinity, the first for sample {broken[0] + 1}",
        )
    zero = np.flatnonzero(~(np.linalg.norm(vectors.astype(np.float64), axis=1) > 1e-12))
    if zero.size:
        return Finding(
            Reason.SHAPE_MISMATCH, f"{zero.size} of {len(vectors)} vectors are zero, the first for sample {zero[0] + 1}"
        )
    return None


def _check_norms(candidate: Vectors, baseline: Vectors) -> Finding | None:
    ours, theirs = (float(np.median(np.linalg.norm(v.astype(np.float64), axis=1))) for v in (candidate, baseline))
    ratio = max(ours, theirs) / min(ours, theirs) if min(ours, theirs) > 0 else math.inf
    if ratio <= NORM_RATIO_LIMIT:
        return None
    return Finding(
        Reason.SHAPE_MISMATCH,
        f"median norm of the candidate's vectors is {ours:.4g}, the baseline's {theirs:.4g}: "
        f"a ratio of {ratio:.3g}, at most {NORM_RATIO_LIMIT:g}. Was the normalisation changed (spec.config.model.normalize)?",
    )


def check_noise(gate: CosineGate, floor: CosineStatistics) -> Finding | None:
    """A threshold that the baseline does not meet against itself can judge nobody."""
    for name, threshold, value in _pairs(gate, floor):
        if not (value >= threshold):
            return Finding(
                Reason.BELOW_NOISE_FLOOR,
                f"the stable revision reaches only cosine.{name} {value:.6f} against itself (batched differently), the "
                f"threshold is {threshold:g}: lower spec.rollout.gates.cosine.{name} below the noise",
            )
    return None


def gate_values(gate: CosineGate, measured: CosineStatistics, floor: CosineStatistics | None) -> list[GateValue]:
    """One value a threshold, NaN told as absent."""
    floors = {name: value for name, _, value in _pairs(gate, floor)} if floor else {}
    return [
        GateValue(
            name=f"cosine.{name}",
            value=round(value, 6) if math.isfinite(value) else None,
            threshold=threshold,
            noise_floor=round(floors[name], 6) if name in floors and math.isfinite(floors[name]) else None,
            passed=value >= threshold,
        )
        for name, threshold, value in _pairs(gate, measured)
    ]


def _pairs(gate: CosineGate, found: CosineStatistics) -> tuple[tuple[str, float, float], ...]:
    return (("min", gate.min, found.minimum), ("p1", gate.p1, found.p1), ("mean", gate.mean, found.mean))


def bound_on_bad_share(count: int, confidence: float = 0.95) -> float:
    """Largest share of bad texts that n samples without a failure leave possible.

    Exact binomial bound for zero failures: 1 - (1 - confidence)^(1/n); 299 samples bound 1 % at 95 %.
    """
    return 1.0 - math.pow(1.0 - confidence, 1.0 / count)
