"""Recommending on a tiny model: config, artifact, report, and everything that is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import openvino as ov
import pytest
import yaml
from typer.testing import CliRunner

from numaserve_api.config import Scheme
from numaserve_api.validate import parse_config
from numaserve_models.artifact import open_artifact
from numaserve_models.cli import app
from numaserve_models.digest import artifact_hash, find_faults
from numaserve_models.errors import ExportError
from numaserve_models.quantize import Bounds, QuantizeRequest, quantize
from numaserve_models.recommend import RecommendRequest, recommend
from numaserve_models.recommend.decide import Candidate
from numaserve_models.recommend.execution import Executed, group_acts
from numaserve_models.recommend.pool import Pool
from numaserve_models.recommend.report import Recommendation
from numaserve_serving.backends import Execution
from numaserve_serving.engine.startup import load
from tests.unit.models.tiny_encoder import TEXTS, tiny_graph, two_forms, write_tiny

BF16 = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def rows(*kinds: tuple[str, str, int]) -> dict[str, list[Execution]]:
    """A table of fully connected layers."""
    return {"whole": [Execution("FullyConnected", precision, kernel, n, True) for precision, kernel, n in kinds]}


@pytest.mark.parametrize(
    ("table", "group", "acts", "words"),
    [
        (rows(("u8", "brgemm_avx512_amx_bf16", 24)), 128, False, "int8 weights widened, bf16 products"),
        (rows(("u8", "brgemm_avx512_f32", 24)), 128, True, "int8 weights, activations quantised in groups of 128"),
        (rows(("u8", "brgemm_avx512_I8", 8), ("i8", "brgemm_avx512_i8", 4)), 0, False, "int8 products"),
        (
            rows(("u4", "brgemm_avx512_f32", 11), ("u8", "brgemm_avx512_f32", 1)),
            0,
            False,
            "11 of 12: int4 weights widened",
        ),
        (rows(("f32", "gemm_mlas_f32", 2)), 0, False, "f32 products"),
        ({"whole": []}, 0, False, "no matrix products seen, f32"),
    ],
)
def test_what_runs_is_told_from_kernels_and_answers(
    table: dict[str, list[Execution]], group: int, acts: bool, words: str
) -> None:
    assert words in Executed(table, "f32", group, acts).summary()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An FP32 artifact; no test changes it."""
    folder = tmp_path_factory.mktemp("recommend") / "fp32"
    write_tiny(folder, two_forms())
    return folder


@pytest.fixture(scope="module")
def found(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recommendation, Path]:
    """Everything tried, under a latency bound that anything meets."""
    folder = tmp_path_factory.mktemp("out")
    request = RecommendRequest(
        source, folder / "config.yaml", folder / "artifact", threads=(1,), lengths=(4, 16), length=16, p99=30.0,
        bounds=Bounds(0.98, 0.95), budget=60,
    )  # fmt: skip
    return recommend(replace(request, schemes=(Scheme.INT8_WEIGHTS, Scheme.INT4_WEIGHTS, Scheme.INT8))), folder


def test_the_config_is_of_the_artifact_that_was_chosen_and_is_served(found: tuple[Recommendation, Path]) -> None:
    chosen, folder = found[0].choice.candidate, found[1]
    assert chosen is not None
    config = parse_config((folder / "config.yaml").read_text())
    assert (config.threads, config.quantization.scheme, config.precision) == (1, chosen.scheme, chosen.activations)
    assert config.model.hash == artifact_hash(folder / "artifact")
    assert find_faults(folder / "artifact") == []
    assert (folder / "artifact" / "config_deploy.yaml").read_text() == (folder / "config.yaml").read_text()
    assert load(config, folder / "artifact", None).facts.precision == chosen.activations
    assert sorted(path.name for path in folder.iterdir()) == ["artifact", "config.yaml"]


def test_every_variant_is_reported_with_its_accuracy_reason_and_execution(
    found: tuple[Recommendation, Path],
) -> None:
    document = json.loads(json.dumps(found[0].document()))
    schemes = {(v["scheme"], v["activations"]): v for v in document["schemes"]}
    assert len(schemes) == 6
    assert "worst cosine" in schemes["int4-weights", "f32"]["refused"]
    assert schemes["int4-weights", "f32"]["cosine"]["samples"] == len(TEXTS)
    assert schemes["int8", "f32"]["refused"] is None
    timed = [c for c in document["candidates"] if c["latencies"]]
    assert timed
    for entry in timed:
        assert {row["form"] for row in entry["executed"]["operations"]} == {"dense", "local"}
        assert all(row["primitive"] and row["runtimePrecision"] for row in entry["executed"]["operations"])
        assert entry["executed"]["dynamicGroup"] == (128 if entry["scheme"] == "int8-weights" else 0)
        assert all(cell["n"] >= 1 and cell["p50Ms"] > 0 for cell in entry["latencies"])
    assert any(cell["p99Ms"] is not None and cell["n"] >= 100 for c in timed for cell in c["latencies"])


def test_no_scheme_accurate_enough_says_the_nearest_and_writes_nothing(source: Path, tmp_path: Path) -> None:
    request = RecommendRequest(
        source, tmp_path / "c.yaml", tmp_path / "a", schemes=(Scheme.INT4_WEIGHTS,), activations=("f32",), threads=(1,)
    )
    done = recommend(request)
    assert done.written is None
    assert done.choice.words.startswith("no scheme is accurate enough; nearest is int4-weights, f32: mean cosine 0.97")
    assert list(tmp_path.iterdir()) == []


def test_a_scheme_whose_making_takes_too_long_is_given_up_with_the_reason(source: Path, tmp_path: Path) -> None:
    ticks = iter(range(10**6))
    request = RecommendRequest(
        source,
        tmp_path / "c.yaml",
        tmp_path / "a",
        schemes=(Scheme.INT8,),
        activations=("f32",),
        threads=(1,),
        budget=5,
    )
    done = recommend(request, now=lambda: float(next(ticks)))
    (variant,) = done.variants
    assert variant.reason is not None
    assert variant.reason.startswith("not made: 60% of 5 s were over before '")
    assert variant.reason in done.choice.words
    assert list(tmp_path.iterdir()) == []


def test_the_source_itself_may_be_the_answer_and_only_its_config_changes(tmp_path: Path) -> None:
    write_tiny(tmp_path / "fp32", tiny_graph())
    before = artifact_hash(tmp_path / "fp32")
    done = recommend(
        RecommendRequest(tmp_path / "fp32", schemes=(Scheme.NONE,), threads=(1,), lengths=(8,), budget=10, p99=20.0)
    )
    assert done.written == (tmp_path / "fp32", tmp_path / "fp32" / "config_deploy.yaml")
    assert artifact_hash(tmp_path / "fp32") == before
    assert find_faults(tmp_path / "fp32") == []
    load(parse_config((tmp_path / "fp32" / "config_deploy.yaml").read_text()), tmp_path / "fp32", None)


def test_a_quantised_artifact_is_tried_with_its_own_scheme_alone(source: Path, tmp_path: Path) -> None:
    quantize(source, tmp_path / "int8w", QuantizeRequest(Scheme.INT8_WEIGHTS))
    done = recommend(
        RecommendRequest(tmp_path / "int8w", tmp_path / "c.yaml", threads=(1,), lengths=(8,), budget=10, p99=9.0)
    )
    assert {v.scheme for v in done.variants} == {Scheme.INT8_WEIGHTS}
    assert done.written is not None
    with pytest.raises(ExportError, match="bf16 cannot be made of it: give the FP32 artifact"):
        recommend(RecommendRequest(tmp_path / "int8w", artifact_out=tmp_path / "a", schemes=(Scheme.BF16,)))
    with pytest.raises(ExportError, match="only an FP32 artifact has FP32 answers"):
        recommend(RecommendRequest(tmp_path / "int8w", samples=tmp_path / "c.yaml"))


def test_samples_of_ones_own_are_compared_with_fp32_answers_made_here(source: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text('{"text": "hello"}\n{"text": "invoice late a b c"}\n')
    request = RecommendRequest(source, tmp_path / "c.yaml", schemes=(Scheme.NONE,), samples=own, threads=(1,), budget=5)
    (variant,) = recommend(request).variants
    assert variant.agreement is not None
    assert (variant.agreement.samples, round(variant.agreement.worst, 5)) == (2, 1.0)


def test_a_pool_holds_no_more_models_than_memory_allows(source: Path) -> None:
    size = (source / "openvino_model.bin").stat().st_size
    graph = source / "openvino_model.xml"
    for limit, most in ((0, 1), (7 * size, 2)):
        pool = Pool({Scheme.NONE: graph, Scheme.BF16: graph}, {}, lambda limit=limit: limit)  # type: ignore[misc]
        for threads in (1, 2, 1):
            assert len(pool(Candidate(threads, Scheme.NONE, "f32"), 4, 3)) == 3
            assert len(pool) <= most
        pool.clear()
        assert len(pool) == 0


@pytest.mark.skipif(not BF16, reason="no bf16 here")
def test_bf16_is_recommended_as_an_artifact_of_scheme_bf16(source: Path, tmp_path: Path) -> None:
    done = recommend(
        RecommendRequest(
            source, None, tmp_path / "a", schemes=(Scheme.BF16,), threads=(1,), lengths=(8,), budget=5, p99=9.0
        )
    )
    assert done.written == (tmp_path / "a", tmp_path / "a" / "config_deploy.yaml")
    config = parse_config((tmp_path / "a" / "config_deploy.yaml").read_text())
    assert (config.precision, open_artifact(tmp_path / "a").manifest.quantization.scheme) == ("bf16", Scheme.BF16)


def test_a_group_that_changes_nothing_is_told(source: Path, tmp_path: Path) -> None:
    assert not group_acts(source / "openvino_model.xml", "f32", 128)  # nothing to quantise: weights are f32


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "name its directory with --artifact-out"),
        ({"schemes": (Scheme.NONE,), "threads": (999,)}, "999 threads are asked, this process may use"),
        ({"schemes": (Scheme.NONE,), "lengths": (4, 99)}, "the model takes 2 to 16 tokens"),
        ({"schemes": (Scheme.NONE,), "p99": 0.0}, "must be above 0"),
        ({"artifact_out": Path("/")}, "exists: remove it or name another directory"),
    ],
)
def test_what_cannot_be_met_is_refused_before_anything_is_measured(
    source: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ExportError, match=words):
        recommend(RecommendRequest(source, **changes))


def test_the_command_writes_config_and_report_and_fails_where_a_bound_fails(source: Path, tmp_path: Path) -> None:
    words = ["recommend", str(source), "--out", str(tmp_path / "c.yaml"), "--schemes", "none", "--threads", "1"]
    words += ["--budget", "5", "--lengths", "8"]
    done = CliRunner().invoke(app, [*words, "--report", str(tmp_path / "r.json")])
    assert done.exit_code == 0, done.output
    assert "tokens a second and thread" in done.stderr
    assert yaml.safe_load((tmp_path / "c.yaml").read_text())["threads"] == 1
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["recommended"] == {"scheme": "none", "activations": "f32", "threads": 1}
    assert str(tmp_path) not in json.dumps(report)
    failed = CliRunner().invoke(app, [*words[:2], *words[4:], "--p99-ms", "0.0001", "--json"])
    assert failed.exit_code == 1
    assert json.loads(failed.stdout)["recommended"] is None
    assert "too long" in failed.stderr
    assert CliRunner().invoke(app, [*words, "--activations", "f16"]).exit_code == 2
