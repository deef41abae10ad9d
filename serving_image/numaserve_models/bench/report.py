"""bench.json, bench.md and index.html."""

from __future__ import annotations

import json
from pathlib import Path

from numaserve_models.bench import summary
from numaserve_models.bench.results import Bench, Cell, Result


def write(bench: Bench, folder: Path) -> None:
    """Write all three."""
    from numaserve_models.bench.page import page

    text = json.dumps(bench.document(), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "bench.json").write_text(text + "\n", encoding="utf-8")
    (folder / "bench.md").write_text(markdown(bench), encoding="utf-8")
    (folder / "index.html").write_text(page(bench), encoding="utf-8")


def markdown(bench: Bench) -> str:
    """The report as Markdown: the summary, a table a length, accuracy, kernels, what was not run, the machine."""
    parts = [
        f"# Bench of {bench.model['name']}",
        "\n\n".join(text for text in (summary.headline(bench), summary.others(bench), summary.excluded(bench)) if text),
        *(_length(bench, length) for length in bench.lengths),
        _accuracy(bench),
        _kernels(bench),
        _missing(bench),
        _conditions(bench),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def conditions(bench: Bench) -> list[str]:
    """The machine and the settings, a sentence each."""
    machine, settings = bench.machine, bench.settings
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return [
        f"{machine['cpu']}{' (virtual)' if machine['virtual'] else ''}, {machine['physicalCores']} physical cores, CPUs {machine['cpus']}, "
        f"SMT {'on' if machine['smt'] else 'off'}, governor {machine['governor'] or 'not readable'}, load {machine['load']} at the start.",
        f"Instruction sets: {', '.join(machine['isa']) or 'none of those asked for'}.",
        f"{settings['threads']} threads, batch {settings['batch']}, full mask; answers compared with {bench.model['reference']}.",
        f"{versions}.",
        *bench.notes,
    ]


def _length(bench: Bench, length: int) -> str:
    timed = [(r, r.cells[length]) for r in bench.results if length in r.cells and r.cells[length].latency]
    if not timed:
        return ""
    rows = [_row(result, cell) for result, cell in timed]
    against = f"speed-up to {bench.baseline}"
    return "\n".join(
        [
            f"## {length} tokens",
            "",
            *_table(["rung", "p50", "tail", "n", "tokens/s", against, "quartiles", "peak memory", "cosine here"], rows),
        ]
    )


def _row(result: Result, cell: Cell) -> list[str]:
    if cell.latency is None:
        return []
    spread = f"{cell.speedup.low:.2f}–{cell.speedup.high:.2f} ({cell.speedup.rounds})" if cell.speedup else "–"
    tail = f"{summary.seconds(cell.latency.tail)} ({cell.latency.tail_name})"
    return [
        result.name, summary.seconds(cell.latency.p50), tail, str(cell.latency.n), f"{cell.tokens_per_second or 0:,.0f}",
        summary.gain(cell), spread, summary.mebibytes(cell.peak_bytes), "–" if cell.cosine is None else f"{cell.cosine:.5f}",
    ]  # fmt: skip


def _accuracy(bench: Bench) -> str:
    rows = [
        [r.name, f"{a.mean:.5f}", f"{a.worst:.5f}", f"{a.drift:.1e}", f"{a.error:.1e}", str(a.samples)]
        for r in bench.results
        if (a := r.accuracy)
    ]
    if not rows:
        return ""
    head = ["rung", "mean cosine", "worst cosine", "mean drift", "largest difference", "samples"]
    return "\n".join([f"## Accuracy against {bench.model['reference']}", "", *_table(head, rows)])


def _kernels(bench: Bench) -> str:
    rows = []
    for result in bench.results:
        facts = result.facts
        if facts:
            said = "; ".join(text for text in (summary.kernels(result), facts.get("note"), _attention(facts)) if text)
            rows.append([result.name, str(facts.get("precision", "?")), str(facts.get("threads", "?")), said or "–"])
    return (
        "\n".join(["## What was executed", "", *_table(["rung", "precision", "threads", "kernels"], rows)])
        if rows
        else ""
    )


def _attention(facts: dict[str, object]) -> str | None:
    return f"attention {facts['attention']}" if facts.get("attention") else None


def missing(bench: Bench) -> list[tuple[str, str]]:
    """What was not measured, and why: a rung, or a rung at a length."""
    found = []
    for result in bench.results:
        if result.reason:
            found.append((result.name, result.reason))
        if result.accuracy_reason:
            found.append((f"{result.name}, accuracy", result.accuracy_reason))
        if result.status != "not run" or not result.reason:
            found += [(f"{result.name} at {c.length} tokens", c.reason) for c in result.cells.values() if c.reason]
    return found


def _missing(bench: Bench) -> str:
    lines = [f"- {name}: {reason}" for name, reason in missing(bench)]
    return "\n".join(["## Not measured", "", *lines]) if lines else ""


def _conditions(bench: Bench) -> str:
    return "\n".join(["## Conditions", "", *(f"- {text}" for text in conditions(bench))])


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in [head, *rows]]
    lines = [f"| {' | '.join(row)} |" for row in escaped]
    return [lines[0], f"|{'---|' * len(head)}", *lines[1:]]
