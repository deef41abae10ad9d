"""Is the export what its source is? Both answer the same batches; the worst difference decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from numaserve_models.errors import ExportError
from numaserve_models.origin import Origin
from numaserve_models.running import Array, Ids, Runner, pad

MAX_ERROR = 1e-4
"""Largest difference of a component, where the largest component expected is at most 1; above, relative to it."""
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """A batch of token ids and what it stands for."""

    name: str
    batch: tuple[tuple[int, ...], ...]

    @property
    def title(self) -> str:
        """With its size: batch x longest text."""
        return f"{self.name} ({len(self.batch)}x{max(map(len, self.batch))} tokens)"


@dataclass(frozen=True, slots=True)
class Worst:
    """The largest error found, as a multiple of max(1, largest expected component), and where."""

    error: float
    shape: str
    shapes: int


def shapes(
    encoded: Sequence[Sequence[int]], buckets: Sequence[int], max_tokens: int, switch: int | None
) -> list[Shape]:
    """One text, a padded batch, the shortest, a bucket's edge, both sides of the switch, the maximum."""
    by_length = sorted(encoded, key=len)
    short, middle, long = by_length[0], by_length[len(by_length) // 2], by_length[-1]
    edge = next((b for b in reversed(buckets[:-1]) if b <= 512), max_tokens)
    found = [
        Shape("one text", (tuple(encoded[0]),)),
        Shape("a padded batch", (tuple(short), tuple(middle), tuple(stretch(long, min(max_tokens, 300)) if len(long) > 300 else long))),
        Shape("the shortest", (tuple(short),)),
        Shape("a bucket's edge", (stretch(long, edge),)),
        Shape("the maximum", (stretch(long, max_tokens),)),
    ]  # fmt: skip
    if switch is not None:
        found += [
            Shape("below the switch", (stretch(long, switch), tuple(short))),
            Shape("above the switch", (stretch(long, min(switch + 1, max_tokens)), tuple(short))),
        ]
    return found


def stretch(ids: Sequence[int], length: int) -> tuple[int, ...]:
    """A text of exactly ``length`` tokens: its inner tokens repeated or cut, first and last kept."""
    if length <= 2:
        return tuple(ids[:length])
    inner = list(ids[1:-1]) or [ids[0]]
    repeated = (inner * ((length - 2) // len(inner) + 1))[: length - 2]
    return (ids[0], *repeated, ids[-1])


def validate(origin: Origin, runner: Runner, checked: Sequence[Shape], progress: Progress = lambda _: None) -> Worst:
    """Compare the graph with its source at every shape. Raises ExportError with the worst case shown."""
    worst = Worst(0.0, "", len(checked))
    for shape in checked:
        progress(f"comparing with the source: {shape.title}")
        ids, mask = pad(shape.batch)
        expected = origin.reference(ids, mask)
        if not np.isfinite(_real(expected, mask)).all():
            raise ExportError(
                f"the source itself answers NaN or infinity at {shape.title}: its weights do not work in FP32"
            )
        error = _error(_real(runner(ids, mask), mask), _real(expected, mask), shape.title)
        if not error <= worst.error:  # NaN is the worst of all
            worst = Worst(error, shape.title, len(checked))
    if not worst.error <= MAX_ERROR:
        raise ExportError(
            f"the exported graph differs from its source by {worst.error:.2e} at {worst.shape}, at most {MAX_ERROR:g} is "
            "allowed: nothing was exported"
        )
    return worst


def _real(answer: Array, mask: Ids) -> Array:
    """Token answers without the rows of padding, which mean nothing."""
    if answer.ndim != 3:
        return answer
    width = min(answer.shape[1], mask.shape[1])
    real: Array = answer[:, :width][mask[:, :width] > 0]
    return real


def _error(answer: Array, expected: Array, where: str) -> float:
    if answer.shape != expected.shape:
        raise ExportError(
            f"the exported graph answers shape {list(answer.shape)} at {where}, its source {list(expected.shape)}"
        )
    return float(np.abs(answer - expected).max() / max(1.0, float(np.abs(expected).max())))
