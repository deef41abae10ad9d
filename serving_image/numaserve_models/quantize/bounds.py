"""How near a quantised graph must stay to FP32: cosines of its answers, sample by sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from numaserve_api.config import Scheme
from numaserve_models.errors import ExportError
from numaserve_models.running import Array, cosines, rows


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least cosine to FP32 that is accepted: the mean over the samples, and the worst one."""

    mean: float
    worst: float


CONTROLLED = Bounds(0.99, 0.95)
"""What accuracy control of scheme int8 reaches for where nothing else is asked."""
FLOORS = {
    Scheme.NONE: Bounds(0.9999, 0.9999),
    Scheme.BF16: Bounds(0.999, 0.99),
    Scheme.INT8_WEIGHTS: Bounds(0.98, 0.95),
    Scheme.INT8: Bounds(0.97, 0.9),
    Scheme.INT4_WEIGHTS: Bounds(0.9, 0.8),
}
"""Below these a graph is broken, whatever bound is asked and whatever a gate may ask later."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Cosine to FP32 over ``samples`` texts; ``sample`` is the index of the worst one."""

    mean: float
    worst: float
    sample: int
    samples: int

    def meets(self, bounds: Bounds) -> bool:
        """Whether both bounds hold; NaN never does."""
        return self.mean >= bounds.mean and self.worst >= bounds.worst


def agreement(answers: Sequence[Array], reference: Array) -> Agreement:
    """Answers, one a text, against reference rows, float32 [n, width]. A text of several rows counts with their mean.

    Raises ExportError where an answer is NaN or infinite, or where the rows do not correspond.
    """
    found = rows(answers)
    if found.shape != reference.shape:
        raise ExportError(
            f"the graph answers {list(found.shape)} for the samples, reference.npy has {list(reference.shape)}: "
            "the artifact's parts do not belong together, export it again"
        )
    finite = [bool(np.isfinite(answer).all()) for answer in answers]
    if not all(finite):
        raise ExportError(
            f"the graph answers NaN or infinity to sample {finite.index(False) + 1}: its weights do not survive this scheme"
        )
    values = _by_sample(_directions(found, reference), [1 if a.ndim == 1 else len(a) for a in answers])
    sample = int(values.argmin())
    return Agreement(float(values.mean()), float(values[sample]), sample, len(values))


def _directions(found: Array, reference: Array) -> npt.NDArray[np.float64]:
    values = cosines(found, reference)
    # A row without a direction agrees with one that has none either (a sparse answer may be empty).
    neither = ~found.any(axis=1) & ~reference.any(axis=1)
    return np.where(np.isfinite(values), values, np.where(neither, 1.0, 0.0))


def _by_sample(values: npt.NDArray[np.float64], counts: Sequence[int]) -> npt.NDArray[np.float64]:
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return np.add.reduceat(values, starts) / np.asarray(counts, dtype=np.float64)


def refuse_below(found: Agreement, bounds: Bounds, scheme: Scheme, texts: Sequence[str], remedy: str) -> None:
    """Raise ExportError naming the bound that is missed and the worst sample."""
    if found.meets(bounds):
        return
    text = texts[found.sample]
    shown = text if len(text) <= 40 else text[:40] + "…"
    missed = (
        f"sample {found.sample + 1} ({shown!r}) with cosine {found.worst:.4f} to FP32, at least {bounds.worst:g} is asked"
        if not found.worst >= bounds.worst
        else f"{found.samples} samples with mean cosine {found.mean:.4f} to FP32, at least {bounds.mean:g} is asked "
        f"(worst: sample {found.sample + 1}, {shown!r}, {found.worst:.4f})"
    )
    raise ExportError(f"scheme {scheme} answers {missed}: {remedy}")
