"""How near each variant comes to FP32 on the samples: of the artifact, or of the person who asks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from numaserve_models.artifact import Artifact
from numaserve_models.errors import ExportError
from numaserve_models.quantize.bounds import Agreement, agreement
from numaserve_models.quantize.calibration import stratify
from numaserve_models.running import Array, Runner, encode, load_tokenizer, rows
from numaserve_models.texts import inputs, read_samples

MOST = 64
"""Texts that variants are compared on, taken from every length bucket alike: `quantize` has measured all of them."""


class Judge:
    """Texts with their FP32 answers."""

    def __init__(self, source: Artifact, samples: Path | None, threads: int) -> None:
        self._threads = threads
        said = source.samples() if samples is None else read_samples(samples)
        texts = inputs(said, source.manifest.model.task)
        encoded = encode(
            load_tokenizer(source.tokenizer),
            texts,
            source.manifest.model.max_tokens,
            source.config.window.truncate_side,
        )
        chosen = stratify([len(ids) for ids in encoded], source.config.buckets, MOST)
        self._encoded: Sequence[list[int]] = [encoded[i] for i in chosen]
        self._reference = (
            _chosen(source, encoded, chosen) if samples is None else rows(self._answers(source.graph, "f32", 0))
        )

    def __call__(self, graph: Path, precision: Literal["f32", "bf16"], group: int) -> Agreement:
        """Cosines of a graph's answers to FP32. Raises ExportError where it answers NaN or cannot be compiled."""
        return agreement(self._answers(graph, precision, group), self._reference)

    def _answers(self, graph: Path, precision: str, group: int) -> list[Array]:
        runner = Runner(graph, precision, group, self._threads)
        executes = str(runner.compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
        if executes != precision:
            raise ExportError(f"this CPU executes {executes} where {precision} is asked")
        return runner.answers(self._encoded)


def _chosen(source: Artifact, encoded: Sequence[Sequence[int]], chosen: Sequence[int]) -> Array:
    """Reference rows of the chosen texts: one a text, or one a token."""
    reference = source.reference()
    if reference is None:
        raise ExportError(f"{source.root} has no reference.npy: export it with samples")
    by_token = len(reference) != len(encoded)
    ends = np.cumsum([len(ids) if by_token else 1 for ids in encoded])
    if ends[-1] != len(reference):
        raise ExportError(
            f"reference.npy has {len(reference)} rows for {len(encoded)} samples: export the artifact again"
        )
    return np.concatenate([reference[ends[i] - (len(encoded[i]) if by_token else 1) : ends[i]] for i in chosen])
