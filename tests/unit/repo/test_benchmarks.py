"""The numbers in docs/benchmarks/README.md are those of the reports beside it. `python -m tests.unit.repo.test_benchmarks` prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[3] / "docs" / "benchmarks"
HEAD = [
    "| model | tokens | PyTorch FP32 | scheme none (as exported) | int8-weights, hint f32 | best | peak memory |",
    "|---|---|---|---|---|---|---|",
]
BOUND = 0.99


def table() -> list[str]:
    """One row a model and length."""
    return HEAD + [
        row
        for path in sorted(FOLDER.glob("*/bench.json"))
        for row in _rows(path.parent.name, json.loads(path.read_text()))
    ]


def _rows(model: str, bench: dict[str, Any]) -> list[str]:
    rungs = {rung["name"]: rung for rung in bench["rungs"]}
    found = []
    for length in bench["lengths"]:
        seen = {name: cell for name, rung in rungs.items() if (cell := _at(rung, length)) is not None}
        base = seen["torch-fp32"]
        served = [n for n in seen if n.startswith("openvino-") and rungs[n]["accuracy"]["mean"] >= BOUND]
        best = max(served, key=lambda name: seen[name]["speedup"]["median"])
        cells = [
            f"[{model}]({model}/bench.md)", f"{length:,}", _time(base["p50"]), _ratio(seen.get("openvino-f32")),
            _ratio(seen.get("openvino-int8-weights-f32")), f"{_ratio(seen[best])} {best.removeprefix('openvino-')}",
            f"{base['peakBytes'] / 2**20:,.0f} → {seen[best]['peakBytes'] / 2**20:,.0f} MiB",
        ]  # fmt: skip
        found.append("| " + " | ".join(cells) + " |")
    return found


def _at(rung: dict[str, Any], length: int) -> dict[str, Any] | None:
    found: dict[str, Any] | None = next(
        (cell for cell in rung["lengths"] if cell["length"] == length and cell.get("speedup")), None
    )
    return found


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"


def _ratio(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    speed = cell["speedup"]
    return f"{speed['median']:.2f}× ({speed['low']:.2f}–{speed['high']:.2f}, {speed['rounds']})"


def test_the_results_told_are_those_of_the_reports() -> None:
    lines = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    begin = lines.index(HEAD[0])
    assert lines[begin : begin + len(table())] == table()


if __name__ == "__main__":
    print("\n".join(table()))
