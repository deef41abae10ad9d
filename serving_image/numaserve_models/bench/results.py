"""What a bench found: one document, from which JSON, Markdown and the page are written."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from numaserve_models.bench.rungs import Rung
from numaserve_models.bench.stats import Latency, Ratio

Status = Literal["measured", "partly", "not run"]


@dataclass(slots=True)
class Accuracy:
    """Cosine to the FP32 answers of the samples. ``drift`` is 1 − mean; ``error`` the largest difference of a component."""

    mean: float
    worst: float
    drift: float
    error: float
    samples: int


@dataclass(slots=True)
class Cell:
    """A rung at a length. ``turns`` holds seconds of each call by round; ``peak_bytes`` is resident memory so far."""

    length: int
    tokens: int
    turns: list[list[float]] = field(default_factory=list)
    baseline_turns: list[list[float]] = field(default_factory=list)
    first_seconds: float | None = None
    estimate: float | None = None
    peak_bytes: int | None = None
    cosine: float | None = None
    latency: Latency | None = None
    speedup: Ratio | None = None
    reason: str | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of the batch over the median call."""
        return self.tokens / self.latency.p50 if self.latency else None


@dataclass(slots=True)
class Result:
    """A rung. ``reason`` says why it was not run or did not finish."""

    rung: Rung
    cells: dict[int, Cell] = field(default_factory=dict)
    reason: str | None = None
    load_seconds: float | None = None
    library_bytes: int | None = None
    loading_bytes: int | None = None
    peak_counts_loading: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    accuracy: Accuracy | None = None
    accuracy_reason: str | None = None

    @property
    def name(self) -> str:
        """The rung's name."""
        return self.rung.name

    @property
    def status(self) -> Status:
        """How much of it was measured."""
        measured = [cell for cell in self.cells.values() if cell.latency]
        if not measured:
            return "not run"
        return "measured" if self.reason is None and len(measured) == len(self.cells) else "partly"

    @property
    def peak_bytes(self) -> int | None:
        """Peak resident memory over all lengths."""
        return max((cell.peak_bytes for cell in self.cells.values() if cell.peak_bytes), default=None)


@dataclass(slots=True)
class Bench:
    """Everything."""

    model: dict[str, Any]
    machine: dict[str, Any]
    settings: dict[str, Any]
    baseline: str | None
    lengths: list[int]
    results: list[Result]
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def bound(self) -> float:
        """Least mean cosine of a rung that the summary may name."""
        return float(self.settings["minCosine"])

    def best(self, length: int, served: bool = True) -> Result | None:
        """The fastest rung at a length within the bound, of those numaserve serves or of all."""
        found = [
            r for r in self.results
            if (r.rung.served or not served) and r.accuracy is not None and r.accuracy.mean >= self.bound
            and length in r.cells and r.cells[length].latency
        ]  # fmt: skip
        return min(found, key=lambda r: _p50(r.cells[length]), default=None)

    def document(self) -> dict[str, Any]:
        """JSON-compatible; names in camelCase, seconds and bytes as numbers."""
        return {
            "version": 1, "model": self.model, "machine": self.machine, "settings": self.settings, "baseline": self.baseline,
            "lengths": self.lengths, "notes": self.notes, "seconds": round(self.seconds, 1),
            "rungs": [_rung(result) for result in self.results],
        }  # fmt: skip


def _rung(result: Result) -> dict[str, Any]:
    return {
        "name": result.name, "runtime": result.rung.runtime, "variant": str(result.rung.variant), "status": result.status,
        "reason": result.reason, "loadSeconds": result.load_seconds, "libraryBytes": result.library_bytes,
        "loadingBytes": result.loading_bytes, "peakCountsLoading": result.peak_counts_loading,
        "facts": result.facts, "accuracy": asdict(result.accuracy) if result.accuracy else None,
        "accuracyReason": result.accuracy_reason, "lengths": [_cell(cell) for cell in result.cells.values()],
    }  # fmt: skip


def _cell(cell: Cell) -> dict[str, Any]:
    timed: dict[str, Any] = {}
    if cell.latency:
        timed = {
            "n": cell.latency.n, "p50": cell.latency.p50, "tail": cell.latency.tail, "tailIs": cell.latency.tail_name,
            "tokensPerSecond": cell.tokens_per_second, "speedup": asdict(cell.speedup) if cell.speedup else None,
        }  # fmt: skip
    return {
        "length": cell.length, **timed, "firstSeconds": cell.first_seconds, "peakBytes": cell.peak_bytes,
        "cosine": cell.cosine, "reason": cell.reason, "rounds": cell.turns,
    }  # fmt: skip


def _p50(cell: Cell) -> float:
    return cell.latency.p50 if cell.latency else float("inf")
