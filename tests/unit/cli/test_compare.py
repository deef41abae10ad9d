"""`numaserve models compare` on tiny artifacts that are really served, and on what cannot be compared."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
import typer
from openvino import opset13 as op
from typer.testing import CliRunner

from demo.world import wait_for
from numaserve_api.config import Pooling, Task
from numaserve_api.manifest import ModelFacts, manifest_digest
from numaserve_models.artifact import seal, write_samples
from numaserve_operator.cli import main
from numaserve_operator.gates.compare import bound_on_bad_share
from tests.unit.serving.conftest import TOKEN, WORDS, Running, make_config, serve, write_artifact, write_tokenizer

TEXTS = ("hello", "hello world", "a b c invoice late", "world " * 12)
WIDTH = 8


def write_graph(path: Path, pooling: Pooling) -> None:
    """An embedding table, pooled and normalised, as OpenVINO IR."""
    table = np.random.default_rng(3).normal(size=(len(WORDS), WIDTH)).astype(np.float32)
    ids = op.parameter([-1, -1], np.int64, name="input_ids")
    mask = op.parameter([-1, -1], np.int64, name="attention_mask")
    for node in (ids, mask):
        node.output(0).get_tensor().set_names({node.get_friendly_name()})
    hidden = op.gather(op.constant(table), ids, op.constant(np.int64(0)))
    weights = op.convert(op.unsqueeze(mask, op.constant(np.array([2], dtype=np.int64))), "f32")
    axis = op.constant(np.array([1], dtype=np.int64))
    mean = op.divide(op.reduce_sum(op.multiply(hidden, weights), axis), op.reduce_sum(weights, axis))
    first = op.gather(hidden, op.constant(np.int64(0)), op.constant(np.int64(1)))
    pooled = mean if pooling is Pooling.MEAN else op.add(first, op.multiply(mean, np.float32(0)))
    result = op.result(op.normalize_l2(pooled, axis, 1e-12, "max"))
    ov.save_model(ov.Model([result], [ids, mask], "tiny"), str(path), compress_to_fp16=False)


def make_artifact(out: Path, pooling: Pooling, space: str, swapped: tuple[str, str] | None = None) -> Path:
    """An artifact directory; ``swapped`` are two words whose ids its tokenizer exchanges."""
    out.mkdir()
    write_graph(out / "openvino_model.xml", pooling)
    write_tokenizer(out)
    if swapped:
        document = json.loads((out / "tokenizer.json").read_text())
        words = document["model"]["vocab"]
        words[swapped[0]], words[swapped[1]] = words[swapped[1]], words[swapped[0]]
        (out / "tokenizer.json").write_text(json.dumps(document))
    write_samples(out, [{"text": text} for text in TEXTS], None)
    nothing = "sha256:" + "0" * 64
    facts = ModelFacts(
        task=Task.EMBEDDING, pooling=pooling, normalize=True, dimensions=[WIDTH], max_tokens=16, positions=16,
        layers=["full"], space=space, weights_digest=nothing, tokenizer_digest=nothing,
    )  # fmt: skip
    config = make_config(nothing)
    model = config.model.model_copy(update={"pooling": pooling, "space": space})
    seal(out, facts, config.model_copy(update={"model": model}), {})
    return out


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`mean`, `cls` pooled the wrong way in the same space, `other` in another space."""
    root = tmp_path_factory.mktemp("artifacts")
    make_artifact(root / "mean", Pooling.MEAN, "x@1")
    make_artifact(root / "cls", Pooling.CLS, "x@1")
    make_artifact(root / "other", Pooling.MEAN, "y@1")
    return root


def invoke(*words: object) -> Any:
    """The command as a person types it."""
    return CliRunner().invoke(main.build(), ["models", "compare", *map(str, words)])


def test_an_artifact_passes_against_itself_and_the_report_has_everything(artifacts: Path) -> None:
    done = invoke(artifacts / "mean", artifacts / "mean", "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["verdict"], told["reason"]) == ("passed", "Passed")
    assert told["message"].startswith(f"{len(TEXTS)} samples against stable revision A: cosine.min 1.0 (≥ 0.95)")
    assert [value["name"] for value in told["gates"]] == ["cosine.min", "cosine.p1", "cosine.mean"]
    assert {value["noiseFloor"] for value in told["gates"]} == {1.0}
    assert told["samples"]["boundOnBadShare"] == bound_on_bad_share(len(TEXTS))
    assert told["tokenIds"] == {"differing": 0, "samples": []}
    assert told["worst"]["text"] in TEXTS
    for side in (told["a"], told["b"]):
        assert side["space"] == "x@1"
        assert side["artifact"] == manifest_digest((artifacts / "mean" / "manifest.json").read_bytes())
        assert side["latency"]["p50Milliseconds"] > 0
        assert side["latency"]["texts"] == len(TEXTS)


def test_another_pooling_is_refused_with_the_operators_sentence_and_the_worst_sample(artifacts: Path) -> None:
    done = invoke(artifacts / "mean", artifacts / "cls")
    assert done.exit_code == 1, done.stderr
    assert "GatesPassed=False, CosineBelowThreshold: below the threshold: cosine.min" in done.stdout
    assert "worst sample: 3, cosine 0.2119" in done.stdout
    assert done.stdout.endswith("worst is sample 3\n")
    assert "token ids are the same in every sample" in done.stdout


def test_thresholds_and_samples_may_be_given(artifacts: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text('{"text": "hello"}\n{"text": "late [invoice] a"}\n')
    low = ["--cosine-min", "-1", "--cosine-p1", "-1", "--cosine-mean", "-1"]
    done = invoke(artifacts / "mean", artifacts / "cls", "--samples", tmp_path / "mine.jsonl", *low)
    assert done.exit_code == 0, done.stderr
    assert "2 samples against stable revision A" in done.stdout
    assert "[invoice]" in done.stdout


def test_another_space_is_named_as_the_operator_names_it(artifacts: Path) -> None:
    done = invoke(artifacts / "mean", artifacts / "other")
    assert done.exit_code == 1
    assert "DifferentSpace: the candidate's embedding space is y@1, stable serves x@1" in done.stdout
    assert "cosine.min" in done.stdout


def test_a_directory_that_is_none_is_one_sentence(artifacts: Path, tmp_path: Path) -> None:
    done = invoke(artifacts / "mean", tmp_path)
    assert done.exit_code == 2
    assert " ".join(done.stderr.split()).endswith(
        "has no manifest.json: it is no artifact directory; make one with `numaserve models export`"
    )
    assert "does not exist" in invoke(artifacts / "mean", tmp_path / "nowhere").stderr


def test_an_artifact_its_server_refuses_is_told_with_reason_and_log(artifacts: Path, tmp_path: Path) -> None:
    write_artifact(tmp_path / "tiny")
    document = make_config("sha256:" + "0" * 64).model_dump(mode="json", by_alias=True, exclude_none=True)
    (tmp_path / "tiny" / "config_deploy.yaml").write_text(json.dumps(document))
    done = invoke(artifacts / "mean", tmp_path / "tiny")
    assert done.exit_code == 2
    assert "cannot be served: DigestMismatch" in done.stderr
    assert "error" in done.stderr.lower()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"text": "a"}\nno json\n', "mine.jsonl, line 2 is not JSON"),
        (b'{"text": "a"}\n\xff\n', "mine.jsonl, line 2: not UTF-8"),
        (b"\n", "mine.jsonl has no sample text"),
    ],
)
def test_samples_that_cannot_be_read_are_named_with_their_line(
    artifacts: Path, tmp_path: Path, content: bytes, words: str
) -> None:
    (tmp_path / "mine.jsonl").write_bytes(content)
    done = invoke(artifacts / "mean", artifacts / "mean", "--samples", tmp_path / "mine.jsonl")
    assert done.exit_code == 2
    assert words in done.stderr


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """The tiny artifact, served as a pod would."""
    digest = write_artifact(tmp_path / "tiny")
    yield from serve(tmp_path / "tiny", make_config(digest), tmp_path)


def test_urls_are_compared_with_their_token_and_refused_without(running: Running) -> None:
    done = invoke(running.probe_url, running.probe_url, "--token", TOKEN, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["a"]["revision"] == told["b"]["revision"] == "rev1"
    bare = invoke(running.probe_url, running.probe_url)
    assert bare.exit_code == 2
    assert "needs --token" in bare.stderr
    wrong = invoke(running.probe_url, running.probe_url, "--token", TOKEN, "--token", "other")
    assert wrong.exit_code == 2
    assert "HTTP 401" in wrong.stderr


@pytest.mark.parametrize("url", ["https://host:8090", "http://host:8090/path", "http://host:99999", "http://"])
def test_a_url_that_is_no_probe_port_is_refused(artifacts: Path, url: str) -> None:
    done = invoke(artifacts / "mean", url, "--token", "t")
    assert done.exit_code == 2
    assert url in done.stderr


def test_another_tokenizer_is_named_with_its_samples(artifacts: Path, tmp_path: Path) -> None:
    make_artifact(tmp_path / "out", Pooling.MEAN, "x@1", swapped=("late", "hello"))
    done = invoke(artifacts / "mean", tmp_path / "out", "--json")
    assert json.loads(done.stdout)["tokenIds"]["samples"] == [1, 2, 3]
    assert "token ids differ in 3 of 4 samples (1, 2, 3)" in invoke(artifacts / "mean", tmp_path / "out").stdout


def servers_below(pid: int) -> list[int] | None:
    """Both server processes that a comparison started; None until there are two."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(child) for child in children.read_text().split()] if children.exists() else []
    return found if len(found) == 2 else None


def test_servers_end_when_the_command_is_told_to(artifacts: Path) -> None:
    code = "from numaserve_operator.cli.main import main; main()"
    command = [sys.executable, "-c", code, "models", "compare", str(artifacts / "mean"), str(artifacts / "mean")]
    with subprocess.Popen(command, env={**os.environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        started = wait_for(lambda: servers_below(process.pid), 20, "two servers")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    assert [pid for pid in started if Path(f"/proc/{pid}").exists()] == []


class Point:
    """An entry point."""

    def __init__(self, name: str, app: typer.Typer | None) -> None:
        self.name, self._app = name, app

    def load(self) -> typer.Typer:
        """The app, or the error of an extra that is not installed."""
        if self._app is None:
            raise ImportError("No module named 'nncf'")
        return self._app


def tools() -> typer.Typer:
    """An app of two verbs."""
    app = typer.Typer(help="Artifact tools.")
    for name in ("export", "verify"):
        app.command(name)(lambda: typer.echo("done"))
    return app


def test_compare_joins_the_artifact_tools_and_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    app = tools()
    monkeypatch.setattr(main, "entry_points", lambda group: [Point("models", app)])
    for _ in range(2):
        told = CliRunner().invoke(main.build(), ["models", "--help"]).output
        assert all(told.count(f"│ {verb} ") == 1 for verb in ("export", "verify", "compare"))
        assert "Artifact tools." in told
    assert CliRunner().invoke(main.build(), ["models", "verify"]).output == "done\n"


def test_without_the_tools_compare_stays_and_the_rest_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "entry_points", lambda group: [Point("models", None)])
    assert "compare" in CliRunner().invoke(main.build(), ["models", "--help"]).output
    done = CliRunner().invoke(main.build(), ["models", "export", "x"])
    assert done.exit_code == 2
    assert "pip install 'numaserve[models]'" in done.stderr
