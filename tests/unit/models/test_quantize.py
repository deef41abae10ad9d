"""Quantising a tiny transformer: every scheme, accuracy control, what outliers do, and everything that is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from openvino import opset13 as op
from typer.testing import CliRunner

from numaserve_api.config import ConfigDeploy, Scheme
from numaserve_api.validate import parse_config
from numaserve_models.artifact import open_artifact
from numaserve_models.cli import app
from numaserve_models.digest import artifact_hash, find_faults
from numaserve_models.errors import ExportError
from numaserve_models.quantize import Bounds, QuantizeRequest, parse_scheme, quantize
from numaserve_models.quantize.bounds import agreement
from numaserve_models.quantize.calibration import read_calibration, stratify
from numaserve_models.quantize.control import rank_layers, smallest_prefix
from numaserve_models.quantize.masks import shielded
from numaserve_models.quantize.outliers import with_outliers
from numaserve_models.quantize.schemes import group_size
from numaserve_models.running import Runner, pad
from numaserve_models.samples import samples_digest
from numaserve_serving.backends import execution_table
from numaserve_serving.engine.errors import StartupError
from numaserve_serving.engine.startup import load
from tests.unit.models.tiny_encoder import MAX_TOKENS, TEXTS, tiny_graph, write_tiny

LOOSE = Bounds(0.0, 0.0)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The FP32 artifact; no test changes it."""
    folder = tmp_path_factory.mktemp("models") / "fp32"
    write_tiny(folder)
    return folder


@pytest.fixture(scope="module")
def outliers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same function with a few channels that carry large activations."""
    folder = tmp_path_factory.mktemp("models") / "outliers"
    write_tiny(folder, with_outliers(tiny_graph()))
    return folder


def provenance(folder: Path) -> dict[str, Any]:
    """What the manifest says about the quantisation."""
    found: dict[str, Any] = open_artifact(folder).manifest.provenance["quantization"]
    return found


@pytest.mark.parametrize("scheme", [Scheme.BF16, Scheme.INT8_WEIGHTS, Scheme.INT8, Scheme.INT4_WEIGHTS])
def test_every_scheme_gives_a_whole_artifact_that_is_served(source: Path, tmp_path: Path, scheme: Scheme) -> None:
    out = tmp_path / "out"
    digest = quantize(source, out, QuantizeRequest(scheme))
    assert digest == artifact_hash(out) != artifact_hash(source)
    assert find_faults(out) == []
    config = parse_config((out / "config_deploy.yaml").read_text())
    assert (config.quantization.scheme, config.model.hash) == (scheme, digest)
    assert load(config, out, None).facts.precision == ("bf16" if scheme is Scheme.BF16 else "f32")
    for name in ("reference.npy", "samples.jsonl", "tokenizer.json"):
        assert (out / name).read_bytes() == (source / name).read_bytes()
    assert provenance(out)["cosine"]["samples"] == len(TEXTS)
    assert provenance(out)["from"] == artifact_hash(source)


@pytest.mark.parametrize("scheme", [Scheme.INT8_WEIGHTS, Scheme.INT8, Scheme.INT4_WEIGHTS])
def test_the_same_inputs_give_the_same_digest(source: Path, tmp_path: Path, scheme: Scheme) -> None:
    request = QuantizeRequest(scheme)
    assert quantize(source, tmp_path / "one", request) == quantize(source, tmp_path / "two", request)


def test_scheme_none_is_the_same_artifact(source: Path, tmp_path: Path) -> None:
    assert quantize(source, tmp_path / "out", QuantizeRequest(Scheme.NONE)) == artifact_hash(source)
    assert find_faults(tmp_path / "out") == []


def test_the_self_test_is_what_the_quantised_graph_answers(source: Path, tmp_path: Path) -> None:
    quantize(source, tmp_path / "out", QuantizeRequest(Scheme.INT4_WEIGHTS))
    before, after = (json.loads((folder / "selftest.json").read_text()) for folder in (source, tmp_path / "out"))
    assert [(t["bucket"], t["text"], t["tokens"]) for t in before] == [
        (t["bucket"], t["text"], t["tokens"]) for t in after
    ]
    assert not np.allclose(before[-1]["vector"], after[-1]["vector"], atol=1e-3)


def test_options_of_the_request_reach_the_config(source: Path, tmp_path: Path) -> None:
    request = QuantizeRequest(Scheme.INT8_WEIGHTS, "bf16", dynamic_group=32, deploy_source="pvc://models/other")
    quantize(source, tmp_path / "out", request)
    config = parse_config((tmp_path / "out" / "config_deploy.yaml").read_text())
    assert (config.precision, config.dynamic_group, config.model.source) == ("bf16", 32, "pvc://models/other")


def test_the_calibration_set_is_hashed_counted_and_must_be_the_one_deployed(source: Path, tmp_path: Path) -> None:
    quantize(source, tmp_path / "out", QuantizeRequest(Scheme.INT8))
    text = (tmp_path / "out" / "config_deploy.yaml").read_text()
    calibration = parse_config(text).quantization.calibration
    assert calibration is not None
    assert (calibration.hash, calibration.samples) == (samples_digest(TEXTS), len(TEXTS))
    document = yaml.safe_load(text)
    document["quantization"]["calibration"]["samples"] = 3
    with pytest.raises(StartupError, match=f"calibration is 3 samples .* the artifact has {len(TEXTS)} samples"):
        load(ConfigDeploy.model_validate(document), tmp_path / "out", None)


def test_a_calibration_set_of_ones_own_makes_another_artifact(source: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text('{"text": "hello world"}\n\n{"text": "invoice late a"}\n')
    digest = quantize(source, tmp_path / "own", QuantizeRequest(Scheme.INT8, calibration=own, bounds=LOOSE))
    calibration = open_artifact(tmp_path / "own").manifest.quantization.calibration
    assert calibration is not None
    assert (calibration.hash, calibration.samples) == (samples_digest(["hello world", "invoice late a"]), 2)
    assert digest != quantize(source, tmp_path / "artifact", QuantizeRequest(Scheme.INT8))


def test_outliers_change_nothing_in_fp32(source: Path, outliers: Path) -> None:
    left, right = open_artifact(source).reference(), open_artifact(outliers).reference()
    assert left is not None
    assert right is not None
    np.testing.assert_allclose(left, right, atol=1e-5)


def test_outliers_break_static_int8_and_smoothing_or_kept_layers_mend_it(outliers: Path, tmp_path: Path) -> None:
    harsh = QuantizeRequest(Scheme.INT8, smooth=False, control=False)
    with pytest.raises(ExportError, match=r"sample \d+ \('.*'\) with cosine 0\.\d+ to FP32, at least 0\.9 is asked"):
        quantize(outliers, tmp_path / "broken", harsh)
    quantize(outliers, tmp_path / "smooth", QuantizeRequest(Scheme.INT8, control=False))
    assert provenance(tmp_path / "smooth")["keptPrecision"] == []
    quantize(outliers, tmp_path / "kept", QuantizeRequest(Scheme.INT8, smooth=False))
    kept = provenance(tmp_path / "kept")
    assert 1 <= len(kept["keptPrecision"]) <= 9
    assert kept["cosine"]["mean"] >= 0.99
    assert kept["cosine"]["min"] >= 0.95


def test_control_that_may_keep_too_few_layers_says_how_near_it_came(outliers: Path, tmp_path: Path) -> None:
    request = QuantizeRequest(Scheme.INT8, smooth=False, max_kept=1)
    with pytest.raises(ExportError, match=r"worst 0\.\d+ with [01] of 17 layers kept in FP32 \(limit 1\)"):
        quantize(outliers, tmp_path / "out", request)
    assert list(tmp_path.iterdir()) == []


def test_a_vector_is_never_quantised_before_it_is_normalised(source: Path, tmp_path: Path) -> None:
    quantize(source, tmp_path / "out", QuantizeRequest(Scheme.INT8))
    graph = ov.Core().read_model(str(tmp_path / "out" / "openvino_model.xml"))
    norm = next(node for node in graph.get_ops() if node.get_type_name() == "NormalizeL2")
    assert norm.input_value(0).get_node().get_type_name() != "FakeQuantize"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (QuantizeRequest(Scheme.BF16, dynamic_group=32), "dynamic group only applies to scheme int8-weights"),
        (QuantizeRequest(Scheme.BF16, calibration=Path("x")), "calibration set only applies to scheme int8"),
        (QuantizeRequest(Scheme.BF16, max_kept=1), "layers to keep only applies to scheme int8"),
        (QuantizeRequest(Scheme.INT8, ratio=0.5), "ratio only applies to scheme int4-weights"),
        (QuantizeRequest(Scheme.INT4_WEIGHTS, ratio=1.5), "must lie between 0 and 1"),
        (QuantizeRequest(Scheme.INT8, calibration_samples=0), "ask for 1 or more"),
        (QuantizeRequest(Scheme.INT8_WEIGHTS, dynamic_group=9999), "less than or equal to 4096"),
        (QuantizeRequest(Scheme.INT4_WEIGHTS, bounds=Bounds(0.999, 0.5)), r"24 samples with mean cosine 0\.9"),
    ],
)
def test_what_cannot_be_asked_is_refused_and_leaves_nothing(
    source: Path, tmp_path: Path, request_: QuantizeRequest, words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        quantize(source, tmp_path / "out", request_)
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_is_quantised_changed_or_no_artifact_is_refused(source: Path, tmp_path: Path) -> None:
    quantize(source, tmp_path / "bf16", QuantizeRequest(Scheme.BF16))
    with pytest.raises(ExportError, match="scheme bf16 already: quantise the FP32 artifact"):
        quantize(tmp_path / "bf16", tmp_path / "out", QuantizeRequest(Scheme.INT8_WEIGHTS))
    shutil.copytree(source, tmp_path / "changed")
    (tmp_path / "changed" / "samples.jsonl").write_text("{}")
    with pytest.raises(ExportError, match=r"is not whole \(changed: samples\.jsonl"):
        quantize(tmp_path / "changed", tmp_path / "out", QuantizeRequest(Scheme.INT8_WEIGHTS))
    with pytest.raises(ExportError, match="no artifact directory"):
        quantize(tmp_path, tmp_path / "out", QuantizeRequest(Scheme.INT8_WEIGHTS))
    with pytest.raises(ExportError, match="exists"):
        quantize(source, tmp_path / "bf16", QuantizeRequest(Scheme.INT8_WEIGHTS))


def test_a_graph_that_answers_nan_or_not_its_reference_is_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path / "nan", tiny_graph(poison=True))
    with pytest.raises(ExportError, match=r"NaN or infinity to sample \d+"):
        quantize(tmp_path / "nan", tmp_path / "out", QuantizeRequest(Scheme.INT8_WEIGHTS))
    with pytest.raises(ExportError, match="NaN"):
        agreement([np.full(3, np.nan, dtype=np.float32)], np.ones((1, 3), dtype=np.float32))
    with pytest.raises(ExportError, match="do not belong together"):
        agreement([np.ones(3, dtype=np.float32)], np.ones((2, 3), dtype=np.float32))
    assert not (tmp_path / "out").exists()


def test_samples_count_once_however_many_rows_they_have() -> None:
    tokens, pooled = np.eye(2, dtype=np.float32), np.array([[1.0, 0.0]], dtype=np.float32)
    found = agreement([tokens, pooled[0]], np.concatenate([np.array([[1, 0], [1, 0]], dtype=np.float32), pooled]))
    assert (found.mean, found.worst, found.sample, found.samples) == (0.75, 0.5, 0, 2)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "holds no text"),
        (b'{"text": "a"}\nnot json\n', "line 2 is not JSON"),
        (b'{"text": "  "}', "line 1 has no text"),
        (b'["a"]', "line 1 has no text"),
        (b'{"text": "\xff"}', "line 1 is not JSON"),
    ],
)
def test_a_broken_calibration_file_is_named_with_its_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "set.jsonl"
    path.write_bytes(content)
    with pytest.raises(ExportError, match=words):
        read_calibration(path)


def test_a_text_may_hold_a_line_separator(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_text('{"text": "a\u2028b"}\n', encoding="utf-8")
    assert read_calibration(tmp_path / "set.jsonl") == [{"text": "a\u2028b"}]


@given(st.lists(st.integers(1, 64), min_size=1, max_size=40), st.integers(1, 40))
def test_a_set_takes_from_every_length_alike(lengths: list[int], count: int) -> None:
    buckets = [8, 16, 32]
    chosen = stratify(lengths, buckets, count)
    assert chosen == sorted(set(chosen))
    assert len(chosen) == min(count, len(lengths))
    stratum = [sum(length > b for b in buckets) for length in lengths]
    taken = {s: sum(stratum[i] == s for i in chosen) for s in set(stratum)}
    for s, number in taken.items():
        exhausted = number == stratum.count(s)
        assert exhausted or number >= max(taken.values()) - 1


@given(st.integers(0, 60), st.integers(1, 80))
def test_the_fewest_layers_that_hold_are_found_in_few_tries(limit: int, needed: int) -> None:
    tries: list[int] = []

    def holds(count: int) -> bool:
        tries.append(count)
        return count >= needed

    assert smallest_prefix(limit, holds) == (needed if needed <= limit else None)
    assert len(tries) == len(set(tries)) <= 2 * max(limit, 1).bit_length() + 1


def test_a_query_and_its_text_are_read_together(tmp_path: Path) -> None:
    pairs = [("hello", text) for text in TEXTS]
    write_tiny(tmp_path / "rerank", texts=pairs)
    for scheme in (Scheme.INT8_WEIGHTS, Scheme.INT8):
        quantize(tmp_path / "rerank", tmp_path / scheme, QuantizeRequest(scheme))
        assert provenance(tmp_path / scheme)["cosine"]["samples"] == len(pairs)
    own = tmp_path / "own.jsonl"
    own.write_text('{"text": "hello"}\n')
    with pytest.raises(ExportError, match="sample 1 has no query"):
        quantize(tmp_path / "rerank", tmp_path / "out", QuantizeRequest(Scheme.INT8, calibration=own))


def test_a_mask_survives_static_quantisation_and_is_no_scale_to_the_runtime(source: Path, tmp_path: Path) -> None:
    quantize(source, tmp_path / "out", QuantizeRequest(Scheme.INT8, control=False))
    assert provenance(tmp_path / "out")["cosine"]["mean"] > 0.998
    plain, changed = Runner(tiny_graph()), Runner(shielded(tiny_graph()))
    ids, mask = pad([[1, 3, 4, 5, 2], [1, 3, 2]])
    np.testing.assert_allclose(plain(ids, mask), changed(ids, mask), atol=1e-6)


def test_a_layer_that_is_the_answer_itself_is_ranked_too() -> None:
    tiny = tiny_graph(pooled=False)
    head = op.matmul(tiny.get_results()[0].input_value(0), np.ones((3, 32), np.float32), False, True)
    graph = ov.Model([op.result(head)], tiny.get_parameters(), "head")
    ranked = rank_layers(graph, graph.clone(), [[1, 3, 4, 2]])
    assert (head.get_friendly_name(),) in ranked


def test_int4_groups_fit_the_narrowest_layer() -> None:
    assert group_size(tiny_graph()) == 32


def test_outliers_need_a_norm_to_sit_on() -> None:
    ids = ov.opset13.parameter([-1, 4], np.float32)
    bare = ov.Model([ov.opset13.matmul(ids, np.eye(4, dtype=np.float32), False, True)], [ids], "bare")
    with pytest.raises(ExportError, match="no norm"):
        with_outliers(bare)


def test_the_execution_table_lists_kernels_and_precisions(source: Path, tmp_path: Path) -> None:
    quantize(source, tmp_path / "out", QuantizeRequest(Scheme.INT8_WEIGHTS))
    runner = Runner(tmp_path / "out" / "openvino_model.xml", group=32)
    ids = np.ones((1, MAX_TOKENS), dtype=np.int64)
    runner(ids, ids)
    table = execution_table(runner.compiled)
    heavy = [row for row in table if row.heavy]
    assert table[: len(heavy)] == heavy
    assert sum(row.count for row in heavy if row.operation == "FullyConnected") == 12
    assert {row.precision for row in heavy if row.operation == "FullyConnected"} == {"u8"}
    assert all(row.primitive not in ("", "?") for row in heavy)


def test_fp16_and_unknown_schemes_are_refused_by_the_command_in_one_sentence(source: Path, tmp_path: Path) -> None:
    for scheme, words in (("fp16", "it brings no gain on CPUs"), ("int2", "must be one of none, bf16")):
        done = CliRunner().invoke(app, ["quantize", str(source), "--out", str(tmp_path / "out"), "--scheme", scheme])
        assert done.exit_code == 2
        assert words in done.output
    with pytest.raises(ExportError, match="no gain"):
        parse_scheme("fp16")


def test_the_command_prints_the_hash_alone_on_standard_output(source: Path, tmp_path: Path) -> None:
    words = ["quantize", str(source), "--out", str(tmp_path / "out"), "--scheme", "int8", "--min-cosine-worst", "0.9"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert done.stdout == artifact_hash(tmp_path / "out") + "\n"
