"""How a comparison is told: as tables for a person, as JSON for a program."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from numaserve_operator.cli.comparing import Comparison, Side
from numaserve_operator.domain.snapshot import Verdict
from numaserve_operator.gates.compare import bound_on_bad_share

SHOWN = 5
"""Samples named one by one; the JSON report has all of them."""
EXCERPT = 100


def document(found: Comparison) -> dict[str, Any]:
    """The report as JSON: names as in the resource's status, times in milliseconds."""
    worst = found.worst
    return {
        "verdict": found.verdict.value,
        "reason": found.reason.value,
        "message": found.message,
        "gates": [value.model_dump(by_alias=True, exclude_none=True) for value in found.values],
        "samples": {
            "digest": found.sample_digest,
            "count": found.sample_count,
            "boundOnBadShare": bound_on_bad_share(found.sample_count) if found.sample_count else None,
        },
        "tokenIds": {"differing": len(found.differing_tokens), "samples": list(found.differing_tokens)},
        "worst": {"sample": worst.sample, "cosine": _finite(worst.cosine), "text": worst.text} if worst else None,
        "a": _side(found.a),
        "b": _side(found.b),
    }


def _side(side: Side) -> dict[str, Any]:
    told = side.report
    return {
        "what": side.title,
        "revision": told.revision,
        "artifact": told.artifact,
        "space": told.space,
        "precision": told.precision,
        "threads": told.threads,
        "fingerprint": told.fingerprint,
        "latency": {"p50Milliseconds": round(side.p50 * 1000, 3), "texts": len(side.latencies)} if side.p50 else None,
    }


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def show(found: Comparison) -> None:
    """Print the report to standard output; the last line is the condition the operator would write."""
    console = Console(highlight=False)
    console.print(_sides_table(found))
    if found.values:
        console.print(_gates_table(found))
    for line in _notes(found):
        console.print(line, soft_wrap=True)
    colour = {Verdict.PASSED: "green", Verdict.FAILED: "red"}.get(found.verdict, "yellow")
    status = f"GatesPassed={found.verdict is Verdict.PASSED}, {found.reason.value}"
    console.print(f"[{colour}]{status}[/]: {escape(found.message)}", soft_wrap=True)


def _sides_table(found: Comparison) -> Table:
    table = Table("", "what", "space", "execution", "p50 of one text", box=None, pad_edge=False)
    for name, side in (("A", found.a), ("B", found.b)):
        told = side.report
        p50 = f"{side.p50 * 1000:.2f} ms (n={len(side.latencies)})" if side.p50 else "–"
        threads = "1 thread" if told.threads == 1 else f"{told.threads} threads"
        execution = f"{told.precision}, {threads}, {told.fingerprint}"
        table.add_row(name, escape(side.title), escape(told.space), escape(execution), p50)
    return table


def _gates_table(found: Comparison) -> Table:
    table = Table("gate", "value", "threshold", "noise floor", "passed", box=None, pad_edge=False)
    for value in found.values:
        cells = ("–" if cell is None else f"{cell:g}" for cell in (value.value, value.threshold, value.noise_floor))
        table.add_row(value.name, *cells, "[green]yes[/]" if value.passed else "[red]no[/]")
    return table


def _notes(found: Comparison) -> list[str]:
    notes = []
    if found.sample_count:
        notes.append(f"{found.sample_count} samples, {found.sample_digest}")
    if found.differing_tokens:
        first = ", ".join(str(number) for number in found.differing_tokens[:SHOWN])
        more = " …" if len(found.differing_tokens) > SHOWN else ""
        notes.append(
            f"[yellow]token ids differ[/] in {len(found.differing_tokens)} of {found.sample_count} samples ({first}{more}): "
            "the tokenizers are not the same"
        )
    elif found.sample_count:
        notes.append("token ids are the same in every sample")
    if found.worst:
        text = found.worst.text if len(found.worst.text) <= EXCERPT else found.worst.text[: EXCERPT - 1] + "…"
        notes.append(f"worst sample: {found.worst.sample}, cosine {found.worst.cosine:.6f}: {escape(repr(text))}")
    return notes
