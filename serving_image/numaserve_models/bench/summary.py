"""What was found in plain words."""

from __future__ import annotations

from numaserve_models.bench.results import Bench, Cell, Result


def headline(bench: Bench) -> str:
    """The fastest that numaserve serves at each length within the accuracy bound, in one paragraph."""
    parts = [text for length in bench.lengths if (text := _at(bench, length))]
    if not parts:
        return f"No rung that numaserve serves was measured within cosine {bench.bound:g} of FP32."
    return f"Fastest served within mean cosine {bench.bound:g} of FP32: {'; '.join(parts)}."


def others(bench: Bench) -> str | None:
    """Where another runtime beat every rung that numaserve serves; None where none did."""
    found = []
    for length in bench.lengths:
        best, any_ = bench.best(length), bench.best(length, served=False)
        if any_ is not None and any_ is not best:
            found.append(f"{any_.name} at {length} tokens ({gain(any_.cells[length])})")
    return f"Faster, though not served: {', '.join(found)}." if found else None


def excluded(bench: Bench) -> str | None:
    """Rungs that the accuracy bound keeps out; None where there are none."""
    names = [f"{r.name} ({r.accuracy.mean:.4f})" for r in bench.results if r.accuracy and r.accuracy.mean < bench.bound]
    return f"Below mean cosine {bench.bound:g}: {', '.join(names)}." if names else None


def gain(cell: Cell) -> str:
    """`2.31×`, or a dash where nothing was paired."""
    return f"{cell.speedup.median:.2f}×" if cell.speedup else "–"


def seconds(value: float) -> str:
    """A duration with three digits: µs, ms or s."""
    unit, scale = next(((u, s) for u, s in (("s", 1.0), ("ms", 1e-3)) if value >= s), ("µs", 1e-6))
    shown = value / scale
    return f"{shown:.0f} {unit}" if shown >= 99.95 else f"{shown:.3g} {unit}"


def mebibytes(value: int | None) -> str:
    """Whole MiB, or a dash."""
    return "–" if value is None else f"{value / 2**20:,.0f} MiB"


def kernels(result: Result, most: int = 4) -> str:
    """The heavy operations as executed, most frequent first: `24× FullyConnected bf16 brgemm_avx512_bf16`."""
    rows = [row for row in result.facts.get("execution", []) if row["heavy"]]
    shown = [f"{r['count']}× {r['operation']} {r['precision']} {r['primitive']}" for r in rows[:most]]
    more = sum(r["count"] for r in rows[most:])
    return "; ".join([*shown, f"{more} more"] if more else shown)


def _at(bench: Bench, length: int) -> str | None:
    best = bench.best(length)
    if best is None:
        return None
    cell = best.cells[length]
    median = seconds(cell.latency.p50) if cell.latency else "–"
    against = f"{gain(cell)} {bench.baseline}, " if cell.speedup and best.name != bench.baseline else ""
    return f"{length} tokens {best.name} ({against}{median})"
