"""The set a static quantisation is calibrated on: every length bucket alike, named by its digest."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numaserve_api.config import Calibration
from numaserve_models.errors import ExportError
from numaserve_models.samples import samples_digest


@dataclass(frozen=True, slots=True)
class CalibrationSet:
    """Texts and their token ids, in one order."""

    texts: list[str]
    encoded: list[list[int]]

    @property
    def facts(self) -> Calibration:
        """Digest and count, as config and manifest name the set."""
        return Calibration(hash=samples_digest(self.texts), samples=len(self.texts))


def read_calibration(path: Path) -> list[dict[str, Any]]:
    """Samples of a samples.jsonl: an object with ``text`` a line, empty lines passed over. Raises ExportError."""
    samples = []
    # Not splitlines: a text may hold U+2028, which JSON leaves unescaped.
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if line.strip():
            samples.append(_sample(line, f"{path.name} line {number}"))
    if not samples:
        raise ExportError(f'{path.name} holds no text: write one JSON object a line, {{"text": "…"}}')
    return samples


def _sample(line: bytes, where: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise ExportError(f"{where} is not JSON ({error}): write one object a line") from error
    text = document.get("text") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(text, str) or not text.strip():
        raise ExportError(f'{where} has no text: write {{"text": "…"}}')
    return document


def choose_set(
    texts: Sequence[str], encoded: Sequence[Sequence[int]], buckets: Sequence[int], count: int
) -> CalibrationSet:
    """At most ``count`` texts, taken in turn from each length bucket, in the order they were given."""
    indices = stratify([len(ids) for ids in encoded], buckets, count)
    return CalibrationSet([texts[i] for i in indices], [list(encoded[i]) for i in indices])


def stratify(lengths: Sequence[int], buckets: Sequence[int], count: int) -> list[int]:
    """Ascending indices of at most ``count`` lengths, the buckets served in turn until each is exhausted."""
    strata: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        strata.setdefault(bisect_left(buckets, length), []).append(index)
    ordered = sorted(
        (place, bucket, index) for bucket, indices in strata.items() for place, index in enumerate(indices)
    )
    return sorted(index for _, _, index in ordered[:count])
