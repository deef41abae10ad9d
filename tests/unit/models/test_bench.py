"""`models bench` with real worker processes and tiny models: rows for what runs, reasons for what does not."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from numaserve_models.bench import crew
from numaserve_models.bench.client import Client, Died, Refused, TooLong
from numaserve_models.bench.ladder import bench
from numaserve_models.bench.machine import Others
from numaserve_models.bench.request import BenchRequest, Step
from numaserve_models.cli import app
from numaserve_models.errors import ExportError
from tests.unit.models.tiny_encoder import write_tiny
from tests.unit.serving.conftest import WORDS, write_tokenizer


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An FP32 artifact."""
    folder = tmp_path_factory.mktemp("bench") / "tiny"
    write_tiny(folder)
    return folder


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence-transformers directory with a random BERT."""
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("bench") / "bert"
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=32,
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    write_tokenizer(folder)
    steps = [("0", "", "Transformer"), ("1", "1_Pooling", "Pooling")]
    modules = [
        {"idx": int(n), "name": n, "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, path, kind in steps
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(
        json.dumps({"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True})
    )
    return folder


def request(out: Path, *sources: Path, **options: Any) -> BenchRequest:
    """A short bench on one thread."""
    plain: dict[str, Any] = {"threads": 1, "budget": 1.0, "rounds": 3, "lengths": (4, 16)}
    return BenchRequest(sources, out, **{**plain, **options})


def read(out: Path) -> dict[str, dict[str, Any]]:
    """bench.json's rungs by name."""
    return {rung["name"]: rung for rung in json.loads((out / "bench.json").read_text())["rungs"]}


class Mortal(Client):
    """A worker that is killed, as the kernel does it, at a call of its life."""

    victim = "openvino-bf16"
    call = 1
    calls: dict[str, int]

    def __init__(self, folder: Path, name: str, threads: int | None) -> None:
        super().__init__(folder, name, threads)
        self._name = name

    def ask(self, limit: float, do: str, **options: Any) -> dict[str, Any]:
        """Kills first where its time has come."""
        if do == "run" and self._name == self.victim:
            self.calls[self._name] = self.calls.get(self._name, 0) + 1
            if self.calls[self._name] == self.call:
                os.kill(self._process.pid, signal.SIGKILL)
        return super().ask(limit, do, **options)


def test_schemes_are_made_measured_in_turns_and_compared(artifact: Path, tmp_path: Path) -> None:
    steps: list[Step] = []
    rungs = ("openvino-f32", "openvino-bf16", "openvino-int8-weights-bf16")
    found = bench(request(tmp_path / "out", artifact, rungs=rungs, budget=2.0), steps.append)
    rows = read(tmp_path / "out")
    assert found.baseline == "openvino-f32"
    assert [row["status"] for row in rows.values()] == ["measured"] * 3
    for name, row in rows.items():
        assert row["accuracy"]["samples"] == 24
        assert row["accuracy"]["mean"] > 0.98
        assert row["facts"]["threads"] == 1
        assert any(entry["heavy"] for entry in row["facts"]["execution"])
        for cell in row["lengths"]:
            assert cell["n"] == sum(len(turn) for turn in cell["rounds"]) >= 3
            assert cell["peakBytes"] > row["libraryBytes"] > 0
            assert cell["speedup"]["rounds"] == 3
            assert cell["cosine"] > 0.98, name
    assert [cell["speedup"]["median"] for cell in rows["openvino-f32"]["lengths"]] == [1.0, 1.0]
    assert rows["openvino-int8-weights-bf16"]["facts"]["dynamicGroup"] == 128
    assert {step.now for step in steps if step.stage == "measuring 16 tokens"} == set(rungs)
    assert "making int8-weights" in {step.now for step in steps}


def test_pytorch_and_onnx_run_from_a_directory_alone_and_the_rest_is_named(directory: Path, tmp_path: Path) -> None:
    rungs = ("torch-fp32", "ipex", "onnxruntime-fp32", "openvino-bf16")
    bench(request(tmp_path / "out", directory, rungs=rungs))
    rows = read(tmp_path / "out")
    assert {name: row["status"] for name, row in rows.items()} == {
        "torch-fp32": "measured", "ipex": "not run", "onnxruntime-fp32": "measured", "openvino-bf16": "not run",
    }  # fmt: skip
    assert rows["torch-fp32"]["facts"]["attention"] == "sdpa"
    assert rows["torch-fp32"]["facts"]["threads"] == 1
    assert rows["onnxruntime-fp32"]["accuracy"]["worst"] > 0.99999
    assert rows["ipex"]["reason"].startswith("intel_extension_for_pytorch cannot be imported (it is not installed): ")
    assert rows["openvino-bf16"]["reason"] == "no artifact in scheme none was given: make one with `models export`"


@pytest.mark.parametrize(
    ("call", "reason", "measured"),
    [
        (1, "at 4 tokens: it was killed", []),
        (3, None, [4]),
        (5, "while it was measured at 4 tokens: it was killed", []),
        (7, "while it was measured at 4 tokens: it was killed", [4]),
    ],
    ids=["first call", "longest length", "first turn", "a later turn"],
)
def test_a_worker_that_is_killed_is_a_row_and_the_others_go_on(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int, reason: str | None, measured: list[int]
) -> None:
    monkeypatch.setattr(Mortal, "call", call)
    monkeypatch.setattr(Mortal, "calls", {}, raising=False)
    monkeypatch.setattr(crew, "Client", Mortal)
    bench(request(tmp_path / "out", artifact, rungs=("openvino-f32", "openvino-bf16")))
    rows = read(tmp_path / "out")
    assert rows["openvino-f32"]["status"] == "measured"
    row = rows["openvino-bf16"]
    assert row["status"] == ("partly" if measured else "not run")
    assert (row["reason"] or "").startswith(reason or "")
    assert [cell["length"] for cell in row["lengths"] if cell.get("n")] == measured
    if call == 3:
        assert row["lengths"][1]["reason"] == "it was killed, as the kernel does when memory runs out"
    assert "it was killed" in (tmp_path / "out" / "bench.md").read_text()


def test_where_memory_is_short_rungs_run_in_groups_with_the_baseline_in_each(artifact: Path, tmp_path: Path) -> None:
    rungs = ("openvino-f32", "openvino-bf16", "openvino-int8-weights-f32")
    found = bench(request(tmp_path / "out", artifact, rungs=rungs, memory=1))
    assert any("in 2 groups, each with openvino-f32" in note for note in found.notes)
    rows = read(tmp_path / "out")
    assert [row["status"] for row in rows.values()] == ["measured"] * 3
    assert [cell["speedup"]["rounds"] for row in rows.values() for cell in row["lengths"]] == [6, 6, 3, 3, 3, 3]


def test_a_call_that_takes_too_long_ends_the_rung_at_that_length(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "FIRST_SECONDS", 0.0)
    with pytest.raises(
        ExportError, match=r"no rung could be measured: openvino-f32: at 4 tokens: a call took over 1e-09 s"
    ):
        bench(request(tmp_path / "out", artifact, rungs=("openvino-f32",), max_seconds=1e-9))
    assert list(tmp_path.iterdir()) == []


def test_a_rung_that_cannot_be_made_has_its_reason(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheme that misses its floor is refused by quantising; the bench goes on."""
    from numaserve_models.bench.supply import Supply, Unavailable

    tried: list[str] = []

    def refuse(self: Supply, kind: str, **_: object) -> dict[str, Any]:
        tried.append(kind)
        raise Unavailable(f"{kind} was refused")

    monkeypatch.setattr(Supply, "_job", refuse)
    bench(request(tmp_path / "out", artifact, rungs=("openvino-f32", "openvino-int8-f32", "openvino-int8-bf16")))
    rows = read(tmp_path / "out")
    assert [rows[f"openvino-int8-{p}"]["reason"] for p in ("f32", "bf16")] == ["artifact was refused"] * 2
    assert tried == ["artifact"]


def test_a_bench_stopped_by_hand_reports_what_it_has(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = crew.Member.turn

    def interrupted(self: crew.Member, length: int, times: int) -> list[float]:
        if self.result.cells[length].turns:  # in the second round
            raise KeyboardInterrupt
        return turn(self, length, times)

    monkeypatch.setattr(crew.Member, "turn", interrupted)
    bench(request(tmp_path / "out", artifact, rungs=("openvino-f32",)))
    assert [cell.get("n") for cell in read(tmp_path / "out")["openvino-f32"]["lengths"]] == [34, None]
    assert "stopped by hand: later rounds are missing" in (tmp_path / "out/bench.md").read_text()


def test_a_busy_machine_is_said_to_be_one(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Others, "share", lambda _: 0.36)
    bench(request(tmp_path / "out", artifact, rungs=("openvino-f32",), lengths=(8,)))
    assert json.loads((tmp_path / "out/bench.json").read_text())["machine"]["othersShare"] == 0.36
    assert "Other processes took 36% of these CPUs" in (tmp_path / "out/index.html").read_text()


def test_a_worker_is_stopped_whenever_it_waits(tmp_path: Path) -> None:
    client = Client(tmp_path, "idle", 1)
    try:
        with pytest.raises(Refused, match="RuntimeError: nothing is loaded"):
            client.ask(60, "facts")
        stat = Path(f"/proc/{client._process.pid}/stat").read_text()
        assert stat.rpartition(")")[2].split()[0] in "Tt"
        with pytest.raises(Refused, match="nothing is loaded"):
            client.ask(60, "facts")
    finally:
        client.close()


def test_a_worker_without_an_answer_is_given_up_and_one_that_fails_to_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path, "late", 1)
    with pytest.raises(TooLong, match="no answer within 0 s"):
        client.ask(0.0, "facts")
    assert client._process.poll() == -signal.SIGKILL
    monkeypatch.setattr("numaserve_models.bench.client.MODULE", "numaserve_models.bench.nothing")
    client = Client(tmp_path, "broken", 1)
    with pytest.raises(Died, match=r"it ended with code 1: .*No module named numaserve_models.bench.nothing"):
        client.ask(60, "facts")
    client.close()


def test_worker_libraries_get_the_threads_asked_and_otherwise_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from numaserve_models.bench.client import _environment

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert _environment(tmp_path, 3)["OMP_NUM_THREADS"] == "3"
    assert "OMP_NUM_THREADS" not in _environment(tmp_path, None)
    assert _environment(tmp_path, 3)["PYTHONPATH"].split(os.pathsep) == [path for path in sys.path if path]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lengths": (17,)}, r"length 17 is outside what the model takes \(4 to 16 tokens\)"),
        ({"threads": 4096}, "4096 threads were asked, this process has"),
        ({"rounds": 0}, "0 rounds measure nothing"),
        ({"budget": 0.0}, "seconds above 0"),
        ({"batch": 0}, "a batch of 0 texts is impossible"),
        ({"rungs": ("nothing",)}, "there is no rung 'nothing'"),
    ],
)
def test_what_cannot_be_asked_is_refused_and_leaves_nothing(
    artifact: Path, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        bench(request(tmp_path / "out", artifact, **options))
    assert list(tmp_path.iterdir()) == []


def test_the_command_prints_the_summary_and_writes_three_files(artifact: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = [
        "bench",
        str(artifact),
        "--out",
        str(out),
        "--rungs",
        "openvino-f32",
        "--lengths",
        "8",
        "--threads",
        "1",
    ]
    run = CliRunner().invoke(app, [*arguments, "--rounds", "2", "--budget", "1", "--batch", "2"])
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("Fastest served within mean cosine 0.99 of FP32: 8 tokens openvino-f32 (")
    assert sorted(p.name for p in out.iterdir()) == ["bench.json", "bench.md", "index.html"]
    cell = read(out)["openvino-f32"]["lengths"][0]
    assert cell["tokensPerSecond"] == pytest.approx(16 / cell["p50"])
    again = CliRunner().invoke(app, arguments)
    assert (again.exit_code, "exists: remove it or name another directory" in again.output) == (2, True)


def test_lengths_that_are_no_numbers_are_refused(artifact: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["bench", str(artifact), "--out", str(tmp_path / "out"), "--lengths", "64,many"])
    assert run.exit_code == 2
    assert "--lengths '64,many' is no list of numbers: write e.g. 64,512,8192" in run.output
