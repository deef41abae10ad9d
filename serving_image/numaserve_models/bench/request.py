"""What is asked of `models bench`, and how it tells where it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from numaserve_models.errors import ExportError


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """Lengths in tokens, times in seconds, memory in bytes; None leaves a choice to the artifact or the machine.

    ``budget`` covers the turns that are timed; making files, loading and first calls come on top. ``rounds`` is the most turns
    a rung takes at a length; ``max_seconds`` the longest call that is waited for.
    """

    sources: tuple[Path, ...]
    out: Path
    lengths: tuple[int, ...] | None = None
    batch: int = 1
    rungs: tuple[str, ...] | None = None
    threads: int | None = None
    rounds: int = 10
    budget: float = 900.0
    max_seconds: float = 120.0
    min_cosine: float = 0.99
    memory: int | None = None

    def refuse(self, cores: int) -> None:
        """Raise ExportError where a value is out of range on ``cores`` physical cores."""
        if self.threads is not None and not 1 <= self.threads <= cores:
            raise ExportError(
                f"{self.threads} threads were asked, this process has {cores} physical cores: ask for 1 to {cores}"
            )
        if self.rounds < 1:
            raise ExportError(f"{self.rounds} rounds measure nothing: ask for 1 or more")
        if not self.budget > 0 or not self.max_seconds > 0:
            raise ExportError("the budget and the longest call are seconds above 0")


@dataclass(frozen=True, slots=True)
class Step:
    """Where a bench is: ``done`` of ``total`` steps of a stage, and what runs now."""

    stage: str
    now: str
    done: int
    total: int


Watch = Callable[[Step], None]
