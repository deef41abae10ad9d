"""The page's plots as SVG, colours by runtime so that a family is seen at a glance."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from numaserve_models.bench.results import Bench, Cell, Result

SHADES = {
    "torch": ("#b9bec6", "#5c6370", "#8d6bb5", "#c9a6e0", "#8a8f98"),
    "onnxruntime": ("#f0b056", "#c4610a"),
    "openvino": ("#a5d8ff", "#4dabf7", "#1971c2", "#0b3d91", "#69db7c", "#2b8a3e", "#087f5b"),
}
MARKERS = "osD^vPX"
_PATCH = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}
"""Behind numbers, so that a line below them does not strike them out."""
_STYLE = {
    "font.family": "sans-serif", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#e6e8eb", "axes.axisbelow": True, "axes.edgecolor": "#9aa0a6", "svg.fonttype": "none",
    "svg.hashsalt": "numaserve", "axes.titlesize": 11,
}  # fmt: skip


def latency(bench: Bench) -> str:
    """Median seconds of a call by length, both axes logarithmic; the band reaches up to the tail."""
    figure, axes = _figure(9.5, 5.2)
    for result in _shown(bench):
        cells = [cell for cell in result.cells.values() if cell.latency]
        lengths = [cell.length for cell in cells]
        medians = [cell.latency.p50 * 1e3 for cell in cells if cell.latency]
        axes.plot(lengths, medians, label=result.name, lw=1.8, ms=5, **_look(bench, result))
    axes.set(xscale="log", yscale="log", xlabel="tokens of a text", ylabel="median of a call, ms")
    _plain_ticks(axes, bench.lengths)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=9)
    return _svg(figure)


def speedups(bench: Bench) -> str:
    """Bars by rung, a panel a length; whiskers are quartiles over rounds, the line is the baseline."""
    shown = _shown(bench)
    columns = min(3, max(1, len(bench.lengths)))
    lines = math.ceil(len(bench.lengths) / columns)
    figure, grid = _figure(3.1 * columns + 2.2, (0.27 * len(shown) + 0.9) * lines, lines, columns)
    panels = list(grid.flat) if hasattr(grid, "flat") else [grid]
    for index, (axes, length) in enumerate(zip(panels, bench.lengths, strict=False)):
        _bars(axes, bench, shown, length, names=index % columns == 0)
    for axes in panels[len(bench.lengths) :]:
        axes.set_visible(False)
    return _svg(figure)


def trade(bench: Bench) -> str | None:
    """Drift from FP32 against speed-up, at the shortest and the longest length; None where no accuracy is known."""
    known = [result for result in _shown(bench) if result.accuracy]
    if not known:
        return None
    ends = sorted({bench.lengths[0], bench.lengths[-1]})
    figure, grid = _figure(5.2 * len(ends) + 2.4, 4.4, 1, len(ends))
    panels = list(grid.flat) if hasattr(grid, "flat") else [grid]
    floor = 1e-9
    for axes, length in zip(panels, ends, strict=True):
        for result in known:
            cell = result.cells.get(length)
            if cell and cell.speedup and result.accuracy:
                x = max(result.accuracy.drift, floor)
                axes.plot([x], [cell.speedup.median], ls="", label=result.name, ms=9, **_look(bench, result))
        bound = max(1 - bench.bound, floor)
        axes.axvspan(bound, max(1.0, 10 * bound), color="#fdecea", zorder=0)
        axes.axhline(1, color="#5c6370", lw=1, ls="--")
        axes.set(xscale="log", xlim=(floor / 2, 1), xlabel="mean drift from FP32 (1 − cosine)")
        axes.set_title(f"{length} tokens", loc="left", fontweight="bold")
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel(f"speed-up to {bench.baseline}")
    figure.legend(
        handles=[_handle(bench, result) for result in known], loc="outside right center", frameon=False, fontsize=9
    )
    return _svg(figure)


def memory(bench: Bench) -> str:
    """Peak resident memory by rung at the longest length that ran; the pale part is there before the model is."""
    shown = [result for result in _shown(bench) if result.peak_bytes]
    figure, axes = _figure(8.5, 0.3 * len(shown) + 1.0)
    for place, result in enumerate(shown):
        peak = (result.peak_bytes or 0) / 2**20
        libraries = min(peak, (result.library_bytes or 0) / 2**20)
        axes.barh(place, peak, color=_colour(bench, result), height=0.68)
        axes.barh(place, libraries, color="#ffffff", alpha=0.65, height=0.68)
        axes.text(peak, place, f"  {peak:,.0f}", va="center", fontsize=9)
    axes.set_yticks(range(len(shown)), [result.name for result in shown])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)
    axes.set_xlabel("MiB at the peak while running; pale: libraries before the model is loaded")
    return _svg(figure)


def _bars(axes: Any, bench: Bench, shown: Sequence[Result], length: int, names: bool) -> None:
    best = bench.best(length)
    top = max((c.speedup.high for r in shown if (c := r.cells.get(length)) and c.speedup), default=1.0)
    for place, result in enumerate(shown):
        cell: Cell | None = result.cells.get(length)
        if cell is None or cell.speedup is None:
            axes.text(0, place, " not measured", va="center", color="#9aa0a6", fontsize=8.5)
            continue
        ratio = cell.speedup
        reach = [[max(0.0, ratio.median - ratio.low)], [max(0.0, ratio.high - ratio.median)]]
        axes.barh(
            place,
            ratio.median,
            color=_colour(bench, result),
            height=0.7,
            xerr=reach,
            error_kw={"lw": 1, "ecolor": "#30363d"},
        )
        weight = "bold" if result is best else "normal"
        axes.text(
            max(ratio.high, ratio.median) + 0.02 * top,
            place,
            f"{ratio.median:.2f}×",
            va="center",
            fontsize=9,
            weight=weight,
            bbox=_PATCH,
        )
    axes.axvline(1, color="#30363d", lw=1, ls="--")
    axes.set_yticks(range(len(shown)), [result.name for result in shown] if names else [""] * len(shown))
    axes.set_xlim(0, top * 1.22)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_title(f"{length} tokens", loc="left", fontweight="bold")


def _shown(bench: Bench) -> list[Result]:
    return [result for result in bench.results if result.status != "not run"]


def _place(bench: Bench, result: Result) -> int:
    """Its place among the rungs of its runtime."""
    return [r for r in bench.results if r.rung.runtime == result.rung.runtime].index(result)


def _colour(bench: Bench, result: Result) -> str:
    shades = SHADES[result.rung.runtime]
    return shades[_place(bench, result) % len(shades)]


def _look(bench: Bench, result: Result) -> dict[str, Any]:
    return {"color": _colour(bench, result), "marker": MARKERS[_place(bench, result) % len(MARKERS)]}


def _handle(bench: Bench, result: Result) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], ls="", ms=8, label=result.name, **_look(bench, result))


def _plain_ticks(axes: Any, lengths: Sequence[int]) -> None:
    axes.set_xticks(list(lengths), [str(length) for length in lengths])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _figure(width: float, height: float, lines: int = 1, columns: int = 1) -> tuple[Any, Any]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(lines, columns)


def _svg(figure: Any) -> str:
    """The figure as an inline SVG element."""
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    text = target.getvalue()
    return text[text.index("<svg") :]
