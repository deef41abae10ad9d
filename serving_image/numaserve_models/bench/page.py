"""index.html: one file without anything from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numaserve_models.bench import plots, report, summary
from numaserve_models.bench.results import Bench, Cell, Result
from numaserve_models.bench.template import PAGE


def page(bench: Bench) -> str:
    """The page. Text is escaped; only the plots go in as they are."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def plot(draw: Callable[[Bench], str | None]) -> Markup | None:
        drawn = draw(bench)
        # Plots hold rung names and numbers of ours, nothing a model could write.
        return None if drawn is None else Markup(drawn)  # noqa: S704

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    shown = [result for result in bench.results if result.status != "not run"]
    return environment.from_string(PAGE).render(
        bench=bench, winners=[_winner(bench, length) for length in bench.lengths], headline=summary.headline(bench),
        asides=[text for text in (summary.others(bench), summary.excluded(bench)) if text],
        rows=[_row(bench, result) for result in shown], executed=[_executed(result) for result in shown if result.facts],
        missing=report.missing(bench), conditions=report.conditions(bench),
        plots={name: plot(getattr(plots, name)) for name in ("latency", "speedups", "trade", "memory")},
    )  # fmt: skip


def _winner(bench: Bench, length: int) -> dict[str, Any]:
    """A card: what to serve at a length."""
    best = bench.best(length)
    if best is None:
        return {"length": length, "name": None}
    cell = best.cells[length]
    return {
        "length": length, "name": best.name.removeprefix("openvino-"), "gain": summary.gain(cell),
        "seconds": summary.seconds(cell.latency.p50) if cell.latency else "–",
        "cosine": f"{best.accuracy.mean:.4f}" if best.accuracy else "–",
    }  # fmt: skip


def _row(bench: Bench, result: Result) -> dict[str, Any]:
    accuracy = result.accuracy
    return {
        "name": result.name, "runtime": result.rung.runtime, "cells": [_cell(bench, result, length) for length in bench.lengths],
        "memory": summary.mebibytes(result.peak_bytes), "mean": f"{accuracy.mean:.5f}" if accuracy else "–",
        "worst": f"{accuracy.worst:.5f}" if accuracy else "–", "below": accuracy is not None and accuracy.mean < bench.bound,
    }  # fmt: skip


def _cell(bench: Bench, result: Result, length: int) -> dict[str, Any]:
    cell: Cell | None = result.cells.get(length)
    if cell is None or cell.latency is None:
        return {
            "text": "–",
            "detail": "",
            "hint": (cell.reason if cell else None) or "not measured",
            "colour": "transparent",
            "best": False,
        }
    spread = cell.speedup
    hint = f"{cell.latency.tail_name} {summary.seconds(cell.latency.tail)}, n = {cell.latency.n}, {cell.tokens_per_second:,.0f} tokens/s"
    if spread:
        hint += f", quartiles {spread.low:.2f}–{spread.high:.2f} over {spread.rounds} rounds"
    return {
        "text": summary.gain(cell), "detail": summary.seconds(cell.latency.p50), "hint": hint,
        "colour": _heat(spread.median if spread else 1.0), "best": result is bench.best(length),
    }  # fmt: skip


def _heat(gain: float) -> str:
    """Green for faster than the baseline, red for slower, full from 4× on."""
    import math

    strength = min(1.0, abs(math.log2(max(gain, 1e-3))) / 2)
    colour = "46, 160, 67" if gain >= 1 else "218, 54, 51"
    return f"rgba({colour}, {0.45 * strength:.2f})"


def _executed(result: Result) -> dict[str, Any]:
    facts = result.facts
    attention = f"attention {facts['attention']}" if facts.get("attention") else ""
    return {
        "name": result.name, "precision": facts.get("precision", "–"), "threads": facts.get("threads", "–"),
        "kernels": summary.kernels(result) or attention or "–", "note": facts.get("note"),
    }  # fmt: skip
