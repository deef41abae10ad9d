"""What `models recommend` found: JSON for machines, tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table

from numaserve_api.config import Scheme
from numaserve_models.bench.stats import latency
from numaserve_models.bench.summary import seconds
from numaserve_models.quantize.bounds import Agreement, Bounds
from numaserve_models.recommend.decide import Candidate, Choice, Goal, rate
from numaserve_models.recommend.execution import Executed


@dataclass(frozen=True, slots=True)
class Variant:
    """A scheme with a hint: how near it comes to FP32, or the reason why it takes no part."""

    scheme: Scheme
    activations: Literal["f32", "bf16"]
    agreement: Agreement | None
    reason: str | None

    @property
    def key(self) -> tuple[Scheme, str]:
        """What names it."""
        return self.scheme, self.activations

    @property
    def name(self) -> str:
        """`int8-weights, bf16`."""
        return f"{self.scheme}, {self.activations}"

    @property
    def ranking(self) -> tuple[float, float]:
        """Larger is nearer to FP32."""
        return (self.agreement.worst, self.agreement.mean) if self.agreement else (-1.0, -1.0)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Everything that was measured, and the choice; ``written`` are the artifact and the config, where there is one."""

    goal: Goal
    bounds: Bounds
    choice: Choice
    variants: Sequence[Variant]
    timings: Mapping[Candidate, Mapping[int, Sequence[float]]]
    left: Mapping[Candidate, str]
    executed: Mapping[tuple[Scheme, str], Executed]
    machine: Mapping[str, Any]
    elapsed: float
    written: tuple[Path, Path] | None

    @property
    def standing(self) -> list[Candidate]:
        """Candidates with timings, the chosen or nearest first, then those that stayed longest."""
        timed = [c for c, t in self.timings.items() if any(t.values())]
        return sorted(timed, key=lambda c: (c != self.choice.nearest, c in self.left, -self._calls(c), c))

    def _calls(self, candidate: Candidate) -> int:
        return sum(len(t) for t in self.timings[candidate].values())

    def document(self) -> dict[str, Any]:
        """The JSON report. No paths: what is chosen is named by scheme, hint and threads."""
        chosen, nearest = self.choice.candidate, self.choice.nearest
        return {
            "version": 1,
            "machine": dict(self.machine),
            "goal": {
                "p99Ms": None if self.goal.p99 is None else self.goal.p99 * 1e3, "length": self.goal.length,
                "lengths": list(self.goal.lengths), "minCosine": self.bounds.mean, "minCosineWorst": self.bounds.worst,
            },
            "seconds": round(self.elapsed, 1),
            "recommended": None if chosen is None else _named(chosen),
            "nearest": None if nearest is None else _named(nearest),
            "reason": self.choice.words,
            "schemes": [self._variant(v) for v in self.variants],
            "candidates": [self._candidate(c) for c in self.timings],
        }  # fmt: skip

    def _variant(self, variant: Variant) -> dict[str, Any]:
        found, executed = variant.agreement, self.executed.get(variant.key)
        cosine = None
        if found is not None:
            cosine = {"mean": round(found.mean, 5), "worst": round(found.worst, 5), "samples": found.samples}
        return {
            "scheme": variant.scheme.value,
            "activations": variant.activations,
            "cosine": cosine,
            "refused": variant.reason,
            "executed": None if executed is None else executed.document(),
        }

    def _candidate(self, candidate: Candidate) -> dict[str, Any]:
        executed = self.executed.get(candidate.variant)
        timed = {n: latency(t) for n, t in sorted(self.timings[candidate].items()) if t}
        latencies = [
            {
                "length": n, "p50Ms": round(t.p50 * 1e3, 3), "p99Ms": round(t.tail * 1e3, 3) if t.tail_name == "p99" else None,
                "maxMs": round(max(self.timings[candidate][n]) * 1e3, 3), "n": t.n,
            }
            for n, t in timed.items()
        ]  # fmt: skip
        return {
            **_named(candidate),
            "left": self.left.get(candidate),
            "latencies": latencies,
            "executed": None if executed is None else executed.document(),
        }

    def rendered(self, most: int = 12) -> RenderableType:
        """Tables for a terminal."""
        return Group(self._schemes(), self._candidates(most))

    def _schemes(self) -> Table:
        table = Table(title="Schemes on this CPU", title_justify="left")
        for name in ("scheme", "hint", "mean cosine", "worst", "executes", "takes part"):
            table.add_column(name, overflow="fold")
        for variant in self.variants:
            found, executed = variant.agreement, self.executed.get(variant.key)
            cosines = ("–", "–") if found is None else (f"{found.mean:.4f}", f"{found.worst:.4f}")
            part = "yes" if variant.reason is None else f"no: {variant.reason}"
            words = executed.summary() if executed else "–"
            table.add_row(variant.scheme, variant.activations, *cosines, words, part)
        return table

    def _candidates(self, most: int) -> Table:
        hidden = len(self.standing) - most
        title = "Candidates, one text a call" + (f" ({hidden} more in the report)" if hidden > 0 else "")
        table = Table(title=title, title_justify="left")
        for name in ("", "scheme", "hint", "threads", "tokens", "p50", "p99 or max", "n", "tokens/s a thread"):
            table.add_column(name, justify="right" if name in ("threads", "tokens", "n") else "left")
        for candidate in self.standing[:most]:
            mark = "→" if candidate == self.choice.candidate else ""
            for place, (length, timed) in enumerate(sorted(self.timings[candidate].items())):
                if not timed:
                    continue
                found = latency(timed)
                head = (
                    (mark, candidate.scheme, candidate.activations, str(candidate.threads)) if not place else ("",) * 4
                )
                tail = seconds(found.tail) + ("" if found.tail_name == "p99" else " max")
                speed = f"{rate(candidate, self.timings[candidate], [length]):,.0f}"
                table.add_row(*head, str(length), seconds(found.p50), tail, str(found.n), speed)
        return table


def _named(candidate: Candidate) -> dict[str, Any]:
    return {
        "scheme": candidate.scheme.value,
        "activations": candidate.activations,
        "threads": candidate.threads,
    }
