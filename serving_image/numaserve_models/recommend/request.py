"""What is asked of `models recommend`, and what about it can be refused before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from numaserve_api.config import Scheme
from numaserve_models.artifact import Artifact
from numaserve_models.bench.machine import physical_cores
from numaserve_models.digest import find_faults
from numaserve_models.errors import ExportError
from numaserve_models.quantize.bounds import CONTROLLED, Bounds
from numaserve_models.recommend.decide import Goal, ladder


@dataclass(frozen=True, slots=True)
class RecommendRequest:
    """Bounds and what may be chosen. Lengths in tokens, ``p99`` and ``budget`` in seconds.

    ``out`` is the config to write (None: beside the artifact that is chosen); ``artifact_out`` where that artifact goes
    if it is not the source; ``samples`` a samples.jsonl in place of the artifact's own.
    """

    source: Path
    out: Path | None = None
    artifact_out: Path | None = None
    schemes: tuple[Scheme, ...] = ()
    activations: tuple[Literal["f32", "bf16"], ...] = ("f32", "bf16")
    threads: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    bounds: Bounds = CONTROLLED
    p99: float | None = None
    length: int | None = None
    samples: Path | None = None
    budget: float = 300.0

    def goal(self, buckets: list[int]) -> Goal:
        """Lengths measured and the one that the latency bound holds at: the longest where none is named."""
        lengths = self.lengths or tuple(buckets)
        length = self.length or max(lengths)
        return Goal(tuple(sorted({*lengths, length})), length, self.p99)

    def ladder(self) -> tuple[int, ...]:
        """Thread counts to try."""
        return tuple(sorted(set(self.threads))) or ladder(len(physical_cores()))


def schemes_of(request: RecommendRequest, source: Artifact) -> tuple[Scheme, ...]:
    """Schemes to try: those asked for, or every one that can be made of the source."""
    own = source.manifest.quantization.scheme
    # The dearest to make comes last: the budget may end before it.
    made = (Scheme.NONE, Scheme.BF16, Scheme.INT8_WEIGHTS, Scheme.INT4_WEIGHTS, Scheme.INT8)
    return request.schemes or (made if own is Scheme.NONE else (own,))


def refuse(request: RecommendRequest, source: Artifact) -> None:
    """Raise ExportError where the request cannot be met whatever is measured."""
    own, schemes = source.manifest.quantization.scheme, schemes_of(request, source)
    others = [scheme for scheme in schemes if scheme is not own]
    if faults := find_faults(source.root):
        raise ExportError(f"{source.root} is not whole ({'; '.join(faults[:3])}): export or copy it again")
    if others and own is not Scheme.NONE:
        raise ExportError(
            f"{source.root} is in scheme {own}, {others[0]} cannot be made of it: give the FP32 artifact, or ask for {own} alone"
        )
    if others and request.artifact_out is None:
        raise ExportError(
            f"scheme {others[0]} is an artifact of its own: name its directory with --artifact-out, or ask for --schemes {own}"
        )
    if request.artifact_out is not None and request.artifact_out.exists():
        raise ExportError(f"{request.artifact_out} exists: remove it or name another directory")
    if source.manifest.parts.reference is None or source.manifest.parts.samples is None:
        raise ExportError(f"{source.root} has no samples with FP32 answers to measure against: export it with samples")
    if request.samples is not None and own is not Scheme.NONE:
        raise ExportError(f"{source.root} is in scheme {own}: only an FP32 artifact has FP32 answers to other samples")
    _refuse_numbers(request, source)


def _refuse_numbers(request: RecommendRequest, source: Artifact) -> None:
    cores, limit = len(physical_cores()), source.manifest.model.max_tokens
    most, goal = max(request.ladder()), request.goal(source.config.buckets)
    if most > cores or min(request.ladder()) < 1:
        raise ExportError(
            f"{most} threads are asked, this process may use {cores} physical cores: ask for 1 to {cores}"
        )
    if max(goal.lengths) > limit or min(goal.lengths) < 2:
        raise ExportError(
            f"lengths {list(goal.lengths)} are asked, the model takes 2 to {limit} tokens: leave the others out"
        )
    if request.budget <= 0 or (request.p99 is not None and request.p99 <= 0):
        raise ExportError("the budget and the latency bound must be above 0")
