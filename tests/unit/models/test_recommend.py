"""Recommending: the decision by properties, the race with a fake clock, and the whole on a tiny model."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import openvino as ov
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from numaserve_api.config import Scheme
from numaserve_api.validate import parse_config
from numaserve_models.artifact import open_artifact
from numaserve_models.bench.stats import latency
from numaserve_models.cli import app
from numaserve_models.digest import artifact_hash, find_faults
from numaserve_models.errors import ExportError
from numaserve_models.quantize import Agreement, Bounds, QuantizeRequest, quantize
from numaserve_models.recommend import RecommendRequest, recommend
from numaserve_models.recommend.decide import (
    Candidate,
    Goal,
    choose,
    common,
    halve,
    ladder,
    shortfall,
    variants,
)
from numaserve_models.recommend.execution import Executed, group_acts
from numaserve_models.recommend.pool import Pool
from numaserve_models.recommend.report import Recommendation
from numaserve_models.recommend.rounds import FINAL_CALLS, Race
from numaserve_serving.backends import Execution
from numaserve_serving.engine.startup import load
from tests.unit.models.tiny_encoder import TEXTS, tiny_graph, two_forms, write_tiny

BF16 = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
ANY = Bounds(0.9, 0.5)
BOUND = Goal((64,), 64, 0.02)
RATE = Goal((16, 64), 64)


def candidate(threads: int, scheme: Scheme = Scheme.NONE, hint: Literal["f32", "bf16"] = "f32") -> Candidate:
    """A candidate."""
    return Candidate(threads, scheme, hint)


def alike(mean: float = 1.0, worst: float = 1.0) -> Agreement:
    """An agreement."""
    return Agreement(mean, worst, 0, 10)


candidates = st.builds(Candidate, st.integers(1, 16), st.sampled_from(list(Scheme)), st.sampled_from(["f32", "bf16"]))
calls = st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=120)
fields = st.dictionaries(candidates, st.fixed_dictionaries({16: calls, 64: calls}), min_size=1, max_size=12)
goals = st.sampled_from([BOUND, RATE, Goal((16, 64), 16, 0.5)])


def equally(timings: dict[Candidate, Any]) -> dict[tuple[Scheme, str], Agreement]:
    """Everybody as accurate."""
    return {c.variant: alike() for c in timings}


@given(fields, goals)
def test_half_of_the_field_is_kept_and_the_fastest_with_it(timings: dict[Candidate, Any], goal: Goal) -> None:
    alive = list(timings)
    kept = halve(alive, timings, goal)
    assert len(kept) == len(set(kept)) == math.ceil(len(alive) / 2)
    assert set(kept) <= set(alive)
    if goal.p99 is not None:
        best = min(float(np.median(timings[c][goal.length])) for c in alive)
        assert min(float(np.median(timings[c][goal.length])) for c in kept) == best


@given(fields, goals)
def test_what_is_chosen_meets_the_bound_with_the_fewest_threads(timings: dict[Candidate, Any], goal: Goal) -> None:
    choice = choose(timings, equally(timings), goal)
    if goal.p99 is None:
        assert choice.candidate in timings
        return
    tails = {c: latency(t[goal.length]).tail for c, t in timings.items()}
    meets = [c for c in tails if tails[c] <= goal.p99]
    if choice.candidate is None:
        assert not meets
        assert choice.nearest is not None
        assert tails[choice.nearest] == min(tails.values())
        assert "too long" in choice.words
    else:
        assert choice.candidate in meets
        assert choice.candidate.threads == min(c.threads for c in meets)


@given(fields)
def test_nothing_per_thread_is_much_faster_than_what_is_chosen(timings: dict[Candidate, Any]) -> None:
    chosen = choose(timings, equally(timings), RATE).candidate
    assert chosen is not None

    def speed(c: Candidate) -> float:
        return float(np.prod([n / np.median(timings[c][n]) for n in RATE.lengths]) ** 0.5) / c.threads

    assert speed(chosen) >= max(map(speed, timings)) / 1.051


@given(fields, goals)
def test_the_order_of_the_field_changes_nothing(timings: dict[Candidate, Any], goal: Goal) -> None:
    turned = dict(reversed(timings.items()))
    assert choose(timings, equally(timings), goal) == choose(turned, equally(timings), goal)
    assert set(halve(list(timings), timings, goal)) == set(halve(list(turned), turned, goal))


@given(st.integers(1, 300))
def test_the_ladder_of_threads_ends_at_all_cores_and_stays_short(cores: int) -> None:
    steps = ladder(cores)
    assert steps[0] == 1
    assert steps[-1] == cores
    assert set(range(1, min(cores, 4) + 1)) <= set(steps)
    assert len(steps) <= 5 + 2 * cores.bit_length()


def test_of_equals_the_more_accurate_is_chosen_and_a_bound_outranks_speed() -> None:
    exact, fast, wide = candidate(1), candidate(1, Scheme.INT8_WEIGHTS), candidate(4, Scheme.BF16, "bf16")
    timings = {exact: {64: [0.0103] * 100}, fast: {64: [0.01] * 100}, wide: {64: [0.002] * 100}}
    accuracy = {exact.variant: alike(), fast.variant: alike(0.999), wide.variant: alike()}
    assert choose(timings, accuracy, BOUND).candidate == exact
    timings[exact] = {64: [0.015] * 100}
    assert choose(timings, accuracy, BOUND).candidate == fast
    assert choose(timings, accuracy, replace(BOUND, p99=0.005)).candidate == wide
    missed = choose(timings, accuracy, replace(BOUND, p99=0.001))
    assert missed.candidate is None
    assert missed.words == ("nothing meets 1 ms at 64 tokens: p99 of bf16, bf16, 4 threads is 2 ms, 1 ms too long")


def test_a_slow_tail_fails_a_bound_that_the_median_meets_and_few_calls_are_named() -> None:
    tailed = {candidate(1): {64: [0.001] * 95 + [0.5] * 5}, candidate(2): {64: [0.002] * 40}}
    choice = choose(tailed, {candidate(1).variant: alike()}, BOUND)
    assert choice.candidate == candidate(2)
    assert "max of 40" in choice.words
    assert "too few calls for a p99" in choice.words


def test_lengths_that_somebody_was_not_timed_at_do_not_decide() -> None:
    one, two = candidate(1), candidate(2)
    timings = {one: {16: [0.1], 64: [9.0]}, two: {16: [0.1]}}
    assert common(timings, [one, two], RATE.lengths) == [16]
    choice = choose(timings, {one.variant: alike()}, RATE)
    assert choice.candidate == one
    assert "1 call(s) at 1 of 2 lengths are few" in choice.words


def test_nothing_measured_is_said() -> None:
    assert "--budget" in choose({candidate(1): {}}, {}, BOUND).words
    assert "at 64 tokens" in choose({candidate(1): {16: [1.0]}}, {}, BOUND).words


def test_accuracy_that_is_missed_is_told_by_how_much() -> None:
    assert shortfall(alike(0.995, 0.96), Bounds(0.99, 0.95)) is None
    words = shortfall(alike(0.98, math.nan), Bounds(0.99, 0.95))
    assert words is not None
    assert "mean cosine 0.9800, 0.99 is asked (0.0100 too low)" in words
    assert "worst cosine nan" in words


def test_a_hint_is_tried_where_it_makes_a_difference() -> None:
    assert variants([Scheme.NONE, Scheme.BF16, Scheme.INT8], ["f32", "bf16"]) == [
        (Scheme.NONE, "f32"), (Scheme.BF16, "bf16"), (Scheme.INT8, "f32"), (Scheme.INT8, "bf16"),
    ]  # fmt: skip


class World:
    """A clock that calls move, and a speed for each candidate."""

    def __init__(self, cost: dict[Candidate, float], load: float = 0.0) -> None:
        self.time, self.cost, self.load = 0.0, cost, load
        self.loaded: set[Candidate] = set()
        self.order: list[Candidate] = []

    def now(self) -> float:
        """The clock."""
        return self.time

    def __call__(self, candidate: Candidate, length: int, times: int) -> list[float]:
        """Calls in proportion to their length."""
        if self.cost[candidate] < 0:
            raise ExportError("cannot be compiled")
        if candidate not in self.loaded:
            self.loaded.add(candidate)
            self.time += self.load
        self.order.append(candidate)
        took = self.cost[candidate] * length
        self.time += took * times
        return [took] * times


@given(
    st.dictionaries(candidates, st.floats(1e-6, 1e-2), min_size=1, max_size=20),
    goals,
    st.floats(0.5, 100.0),
    st.floats(0, 0.5),
)
def test_a_race_ends_in_time_but_for_what_was_begun(
    cost: dict[Candidate, float], goal: Goal, budget: float, load: float
) -> None:
    world = World(cost, load)
    race = Race(goal, world, world.now, budget)
    race.run(list(cost))
    longest = max(cost.values()) * max(goal.lengths)
    assert world.time <= budget + load + 5 * longest + 1e-6
    standing = [c for c in cost if c not in race.left]
    assert standing
    for c, lengths in race.timings.items():
        for n, seconds in lengths.items():
            assert set(seconds) == {cost[c] * n}


def test_a_race_with_time_finds_the_cheapest_that_meets_the_bound_in_turns() -> None:
    cost = {candidate(t, s): 0.001 / t for t in range(1, 9) for s in (Scheme.NONE, Scheme.INT8)}
    world = World(cost)
    race = Race(BOUND, world, world.now, 1000.0)
    race.run(list(cost))
    final = {c: t for c, t in race.timings.items() if c not in race.left}
    chosen = choose(final, equally(final), BOUND).candidate
    assert chosen is not None
    assert chosen.threads == 4
    assert len(race.timings[chosen][64]) >= FINAL_CALLS
    first = world.order[: 2 * len(cost)]
    assert {first.count(c) for c in cost} == {2}
    assert all(a != b for a, b in zip(world.order[-4:], world.order[-3:], strict=False))


def test_a_candidate_that_cannot_run_leaves_with_its_reason() -> None:
    cost = {candidate(t): (-1.0 if t % 2 else 0.0001) for t in range(1, 9)}
    world = World(cost)
    race = Race(BOUND, world, world.now, 100.0)
    race.run(list(cost))
    assert {race.left[candidate(t)] for t in (1, 3, 5, 7)} == {"cannot be compiled"}
    assert any(candidate(t) not in race.left for t in (2, 4, 6, 8))


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
            assert len(pool(candidate(threads), 4, 3)) == 3
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
