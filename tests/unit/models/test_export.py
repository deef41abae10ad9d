"""Exporting a tiny encoder: what comes out, that it agrees with its source, and everything that is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
import yaml
from openvino import opset13 as op
from typer.testing import CliRunner

from numaserve_api.config import Pooling
from numaserve_api.validate import parse_config
from numaserve_models.cli import app
from numaserve_models.digest import artifact_hash, find_faults
from numaserve_models.errors import ExportError
from numaserve_models.export import ExportRequest, export
from numaserve_serving.engine.startup import load
from tests.unit.serving.conftest import WORDS, write_tokenizer

WIDTH = 8
TEXTS = ("hello", "hello world", "a b c invoice late", "world " * 12)


def write_encoder(
    path: Path, *, types: bool = False, pooled_only: bool = False, extra: bool = False, nan: bool = False
) -> Path:
    """An encoder [batch, length] → [batch, length, width] saved as OpenVINO IR."""
    table = np.random.default_rng(3).normal(size=(len(WORDS), WIDTH)).astype(np.float32)
    if nan:
        table[:] = np.nan
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else []), *(["pixels"] if extra else [])]
    nodes = {name: op.parameter([-1, -1], np.int64, name=name) for name in names}
    for name, node in nodes.items():
        node.output(0).get_tensor().set_names({name})
    hidden = op.gather(op.constant(table), nodes["input_ids"], op.constant(np.int64(0)))
    for name in names[1:]:
        weight = op.convert(op.unsqueeze(nodes[name], op.constant(np.array([2], dtype=np.int64))), "f32")
        hidden = op.add(hidden, op.multiply(weight, np.float32(0.25)))
    if pooled_only:
        hidden = op.reduce_mean(hidden, op.constant(np.array([1], dtype=np.int64)))
    result = op.result(hidden)
    result.output(0).get_tensor().set_names({"last_hidden_state"})
    ov.save_model(ov.Model([result], list(nodes.values()), "encoder"), str(path), compress_to_fp16=False)
    return path


@pytest.fixture
def request_of(tmp_path: Path) -> RequestMaker:
    """Makes export requests below the test's folder."""
    return RequestMaker(tmp_path)


class RequestMaker:
    """Export requests for the tiny encoder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        write_tokenizer(root)

    def __call__(self, out: str = "out", encoder: dict[str, bool] | None = None, **changes: Any) -> ExportRequest:
        """A request; ``encoder`` are arguments of write_encoder."""
        source = write_encoder(self.root / "encoder.xml", **(encoder or {}))
        request = ExportRequest(
            source,
            self.root / out,
            tokenizer=self.root / "tokenizer.json",
            pooling=Pooling.MEAN,
            max_tokens=16,
            positions=16,
            buckets=(8, 16),
            samples=tuple({"text": text} for text in TEXTS),
        )
        return ExportRequest(**{**{f: getattr(request, f) for f in request.__slots__}, **changes})


def test_an_export_is_whole_paste_ready_and_served(request_of: RequestMaker) -> None:
    request = request_of()
    digest = export(request)
    assert digest == artifact_hash(request.out)
    assert find_faults(request.out) == []
    config = parse_config((request.out / "config_deploy.yaml").read_text())
    assert config.model.hash == digest
    loaded = load(config, request.out, None)
    assert loaded.facts.threads == 1
    assert np.load(request.out / "reference.npy").shape == (len(TEXTS), WIDTH)
    assert [t["bucket"] for t in json.loads((request.out / "selftest.json").read_text())] == [8, 16]


def test_the_same_inputs_give_the_same_digest(request_of: RequestMaker) -> None:
    one = request_of("one")
    assert export(one) == export(replace(one, out=one.out.with_name("two")))


@pytest.mark.parametrize("pooling", [Pooling.MEAN, Pooling.CLS, Pooling.LAST])
@pytest.mark.parametrize("types", [False, True])
def test_pooling_and_folded_segments_agree_with_the_source(
    request_of: RequestMaker, pooling: Pooling, types: bool
) -> None:
    request = request_of(pooling=pooling, encoder={"types": types})
    export(request)
    manifest = json.loads((request.out / "manifest.json").read_text())
    assert manifest["model"]["pooling"] == pooling.value
    assert [i.get_any_name() for i in ov.Core().read_model(str(request.out / "openvino_model.xml")).inputs] == [
        "input_ids",
        "attention_mask",
    ]


def test_another_pooling_is_another_default_space(request_of: RequestMaker) -> None:
    spaces = set()
    for pooling in (Pooling.MEAN, Pooling.CLS):
        request = request_of(pooling.value, pooling=pooling)
        export(request)
        spaces.add(yaml.safe_load((request.out / "config_deploy.yaml").read_text())["model"]["space"])
    assert len(spaces) == 2


def test_vectors_without_normalisation_keep_their_length(request_of: RequestMaker) -> None:
    request = request_of(normalize=False)
    export(request)
    norms = np.linalg.norm(np.load(request.out / "reference.npy"), axis=1)
    assert not np.allclose(norms, 1)


@pytest.mark.parametrize(
    ("encoder", "changes", "words"),
    [
        ({"extra": True}, {}, "pixels"),
        ({"pooled_only": True}, {}, "one is needed"),
        ({}, {"pooling": None}, "cls, mean or last"),
        ({}, {"space": "a b"}, "config.model.space"),
        ({}, {"deploy_source": "ftp://x"}, "config.model.source"),
        ({}, {"buckets": (8, 32)}, "--buckets reaches 32 tokens, the window is 16"),
        ({}, {"head": "nothing"}, "has no output nothing"),
        ({"pooled_only": True}, {"head": "last_hidden_state"}, "3 dimensions are needed"),
        ({}, {"max_tokens": 17}, "beyond the model's 16 positions"),
        ({}, {"samples": ({"text": ""},)}, "sample 1 has no text"),
        ({}, {"scheme": "fp16"}, "no gain on CPU"),
        ({"nan": True}, {}, "differs from its source|NaN"),
    ],
)
def test_what_cannot_become_an_artifact_is_refused_and_leaves_nothing(
    request_of: RequestMaker, encoder: dict[str, bool], changes: dict[str, Any], words: str
) -> None:
    request = request_of(encoder=encoder, **changes)
    with pytest.raises(ExportError, match=words):
        export(request)
    assert not request.out.exists()
    assert not list(request.out.parent.glob(".out.*"))


def test_an_existing_directory_and_a_broken_tokenizer_are_refused(request_of: RequestMaker) -> None:
    request = request_of()
    request.out.mkdir()
    with pytest.raises(ExportError, match="exists"):
        export(request)
    (request.out.parent / "tokenizer.json").write_text("{}")
    with pytest.raises(ExportError, match="tokenizer"):
        export(request_of("other"))


def test_verify_names_what_was_changed_added_linked_or_is_missing(request_of: RequestMaker) -> None:
    request = request_of()
    export(request)
    (request.out / "samples.jsonl").write_text("{}")
    (request.out / "extra").write_text("x")
    (request.out / "tokenizer.json").unlink()
    (request.out / "selftest.json").unlink()
    (request.out / "selftest.json").symlink_to("/etc/hostname")
    runner = CliRunner().invoke(app, ["verify", str(request.out)])
    assert runner.exit_code == 1
    assert set(runner.output.split("\n")[:-1]) == {
        "changed: samples.jsonl", "added: extra", "missing: tokenizer.json", "linked: selftest.json leads to /etc/hostname",
    }  # fmt: skip


def test_the_command_exports_and_prints_the_hash(request_of: RequestMaker) -> None:
    request = request_of()
    words = [
        "export",
        str(request.source),
        "--tokenizer",
        str(request.tokenizer),
        "--out",
        str(request.out),
        "--scheme",
        "none",
        "--max-tokens",
        "16",
        "--pooling",
        "mean",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert artifact_hash(request.out) in done.output
    assert CliRunner().invoke(app, words).exit_code == 2
