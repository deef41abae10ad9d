"""The report: what it says in JSON, Markdown and on the page, of a bench that is made up."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from numaserve_models.bench import plots, summary
from numaserve_models.bench.page import page
from numaserve_models.bench.report import markdown, write
from numaserve_models.bench.rungs import LADDER
from tests.unit.models.bench_sample import LENGTHS, made_up

_VOID = {"meta", "br", "img", "input", "hr", "link"}


class _Reader(HTMLParser):
    """Text, attributes, and whether every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href") and v and not v.startswith("#")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [v for k, v in attrs if k in ("src", "href", "xlink:href") and v and not v.startswith("#")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def read() -> _Reader:
    """The page of the made-up bench, read."""
    reader = _Reader()
    reader.feed(page(made_up()))
    reader.close()
    return reader


def test_the_summary_names_the_fastest_served_rung_within_the_bound_at_each_length() -> None:
    bench = made_up()
    text = summary.headline(bench)
    assert text.startswith(
        "Fastest served within mean cosine 0.99 of FP32: 64 tokens openvino-int8-bf16 (3.25× torch-fp32, 3.45 ms); "
    )
    assert text.count("tokens") == len(LENGTHS)
    bench.settings["minCosine"] = 0.9999
    assert "8192 tokens openvino-bf16 (3.90× torch-fp32, 5.92 s)" in summary.headline(bench)
    bench.settings["minCosine"] = 1.1
    assert summary.headline(bench) == "No rung that numaserve serves was measured within cosine 1.1 of FP32."


def test_a_faster_runtime_that_is_not_served_and_rungs_below_the_bound_are_named() -> None:
    bench = made_up()
    assert summary.others(bench) is None
    assert summary.excluded(bench) == "Below mean cosine 0.99: openvino-int4-weights-bf16 (0.9710)."
    quick = next(r for r in bench.results if r.name == "onnxruntime-fp32").cells[64]
    assert quick.latency is not None
    quick.latency = type(quick.latency)(1e-6, 1e-6, 100)
    assert (summary.others(bench) or "").startswith("Faster, though not served: onnxruntime-fp32 at 64 tokens")


def test_markdown_has_a_row_a_rung_at_each_length_with_n_and_an_honest_tail() -> None:
    text = markdown(made_up())
    for length in LENGTHS:
        section = text.partition(f"## {length} tokens\n")[2].partition("\n## ")[0]
        assert section.count("\n| ") == (14 if length != 8192 else 13)
    assert "| openvino-bf16 | 5.92 s | 5.98 s (max of 3) | 3 |" in text
    assert "(p99) | 100 |" in text
    assert "- onnxruntime-int8 at 8192 tokens: it was killed, as the kernel does when memory runs out" in text
    assert "- ipex: intel_extension_for_pytorch cannot be imported" in text
    assert "24× FullyConnected bf16 brgemm_avx512_bf16" in text
    assert "Reorder" not in text
    assert "- A note." in text


def test_json_holds_every_rung_every_call_and_everything_executed(tmp_path: Path) -> None:
    write(made_up(), tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bench.json", "bench.md", "index.html"]
    document = json.loads((tmp_path / "bench.json").read_text())
    assert [rung["name"] for rung in document["rungs"]] == [rung.name for rung in LADDER]
    statuses = {rung["name"]: rung["status"] for rung in document["rungs"]}
    assert (statuses["ipex"], statuses["onnxruntime-int8"], statuses["openvino-bf16"]) == (
        "not run",
        "partly",
        "measured",
    )
    bf16 = next(rung for rung in document["rungs"] if rung["name"] == "openvino-bf16")
    assert [cell["n"] for cell in bf16["lengths"]] == [100, 100, 100, 10, 3]
    assert [len(turn) for turn in bf16["lengths"][0]["rounds"]] == [10] * 10
    assert bf16["lengths"][-1]["tokensPerSecond"] == pytest.approx(8192 / bf16["lengths"][-1]["p50"])
    assert len(bf16["facts"]["execution"]) == 2


def test_the_page_is_whole_names_every_rung_and_fetches_nothing(read: _Reader) -> None:
    assert read.open == []
    text = " ".join(read.text)
    for rung in LADDER:
        assert rung.name in text
    assert read.links == []
    assert "nothing within the bound" not in text


def test_text_of_a_model_is_escaped(read: _Reader) -> None:
    assert "tiny <b>" in " ".join(read.text)
    assert "CPU & Sons 9000" in " ".join(read.text)


def test_the_page_can_be_drawn_of_one_rung_at_one_length_without_accuracy() -> None:
    bench = made_up()
    bench.results = [r for r in bench.results if r.name == "openvino-f32"]
    bench.results[0].cells = {64: bench.results[0].cells[64]}
    bench.results[0].accuracy = None
    bench.lengths, bench.baseline = [64], "openvino-f32"
    assert plots.trade(bench) is None
    assert "nothing within the bound" in page(bench)
    assert "Accuracy" not in markdown(bench)


def test_a_rung_that_never_ran_beside_the_baseline_has_times_and_no_ratio(tmp_path: Path) -> None:
    bench = made_up()
    for cell in next(r for r in bench.results if r.name == "openvino-bf16").cells.values():
        cell.speedup, cell.cosine = None, None
    write(bench, tmp_path)
    row = next(
        line for line in (tmp_path / "bench.md").read_text().splitlines() if line.startswith("| openvino-bf16 |")
    )
    assert row.split(" | ")[5:] == ["–", "–", "708 MiB", "– |"]
    json.loads((tmp_path / "bench.json").read_text(), parse_constant=pytest.fail)


def test_equal_benches_give_equal_pages() -> None:
    assert page(made_up()) == page(made_up())


@pytest.mark.parametrize(
    ("value", "text"),
    [(12.345, "12.3 s"), (1234.6, "1235 s"), (0.0123, "12.3 ms"), (4.2e-5, "42 µs"), (0.9996, "1000 ms")],
)
def test_durations_have_three_digits(value: float, text: str) -> None:
    assert summary.seconds(value) == text
