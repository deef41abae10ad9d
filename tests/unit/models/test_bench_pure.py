"""The bench's arithmetic: how often to call, who is alive together, what is said of timings, which inputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numaserve_models.bench import machine, plan, stats
from numaserve_models.bench.ladder import stranger
from numaserve_models.bench.machine import one_cpu_per_core
from numaserve_models.bench.material import filled, reference_rows, sort_sources, spread
from numaserve_models.bench.rungs import LADDER, baseline_first, baseline_of, select
from numaserve_models.errors import ExportError
from numaserve_models.running import load_tokenizer
from tests.unit.models.bench_sample import made_up
from tests.unit.models.tiny_encoder import TEXTS, tiny_graph, write_tiny
from tests.unit.serving.conftest import write_tokenizer

SECONDS = st.floats(1e-5, 1e3, allow_nan=False)
COSTS = st.dictionaries(
    st.integers(4, 8192), st.dictionaries(st.sampled_from("abcdef"), SECONDS, min_size=1), min_size=1, max_size=5
)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 1e7))
def test_shares_are_fair_never_more_than_wanted_and_nothing_is_left_while_somebody_wants(
    wants: list[float], total: float
) -> None:
    given_ = plan.shares(wants, total)
    assert all(0 <= g <= w for g, w in zip(given_, wants, strict=True))
    assert sum(given_) == pytest.approx(min(total, sum(wants)), rel=1e-9, abs=1e-6)
    short = [g for g, w in zip(given_, wants, strict=True) if g < w * (1 - 1e-9)]
    assert all(s >= max(given_) * (1 - 1e-6) - 1e-9 for s in short)


@given(COSTS, st.floats(0, 1e6), st.integers(1, 30))
def test_a_plan_calls_every_rung_at_least_thrice_and_keeps_to_the_budget_beyond_that(
    costs: dict[int, dict[str, float]], budget: float, rounds: int
) -> None:
    made = plan.plan(costs, budget, rounds)
    assert made.keys() == costs.keys()
    for length, turns in made.items():
        assert turns.bursts.keys() == costs[length].keys()
        assert 1 <= turns.rounds <= rounds
        assert all(turns.calls(rung) >= min(3, rounds) for rung in turns.bursts)
        assert all(turns.calls(rung) < plan.MOST + rounds for rung in turns.bursts)
    spent = sum(t.calls(rung) * costs[n][rung] for n, t in made.items() for rung in t.bursts)
    least = sum(plan.LEAST * s for rungs in costs.values() for s in rungs.values())
    # A full hundred may be rounded up by less than a round.
    assert spent <= (budget + least) * (1 + rounds / plan.MOST) + 1e-6


def test_forty_seconds_are_called_thrice_and_short_ones_a_hundred_times_in_one_budget() -> None:
    made = plan.plan({64: {"torch": 0.01, "ov": 0.004}, 8192: {"torch": 40.0, "ov": 9.0}}, 300, 10)
    assert [made[64].calls(r) for r in ("torch", "ov")] == [100, 100]
    assert made[8192].calls("torch") == 3
    assert made[8192].calls("ov") > 3
    assert made[8192].rounds == 3


@given(
    st.dictionaries(st.sampled_from([r.name for r in LADDER[2:]]), st.integers(1, 100), max_size=10),
    st.integers(1, 100),
    st.integers(1, 400),
)
def test_groups_hold_every_rung_once_beside_the_baseline_and_fit_where_they_can(
    peaks: dict[str, int], base: int, limit: int
) -> None:
    made = plan.groups({"torch-fp32": base, **peaks}, "torch-fp32", limit)
    assert all(group[0] == "torch-fp32" for group in made)
    assert [name for group in made for name in group[1:]] == list(peaks)
    for group in made:
        if len(group) > 2:
            assert base + sum(peaks[name] for name in group[1:]) <= limit


@given(st.lists(st.integers(), min_size=1, max_size=14, unique=True), st.integers(0, 50))
def test_an_order_is_everybody_once(names: list[int], turn: int) -> None:
    shown = [str(name) for name in names]
    assert sorted(plan.order(shown, turn)) == sorted(shown)


def test_nobody_is_always_first() -> None:
    assert {plan.order(["a", "b", "c"], turn)[0] for turn in range(6)} == {"a", "b", "c"}


@given(st.lists(SECONDS, min_size=1, max_size=250))
@example([0.5] * 98 + [9.0])
@example([0.5] * 99 + [9.0])
def test_a_p99_is_claimed_from_a_hundred_calls_on(seconds: list[float]) -> None:
    found = stats.latency(seconds)
    assert min(seconds) <= found.p50 <= max(seconds)
    assert found.p50 <= found.tail * (1 + 1e-12)
    if len(seconds) < 100:
        assert (found.tail, found.tail_name) == (max(seconds), f"max of {len(seconds)}")
    else:
        assert found.tail_name == "p99"
        assert sum(s > found.tail for s in seconds) <= len(seconds) // 100 + 1


@given(st.lists(st.lists(SECONDS, min_size=1, max_size=5), min_size=1, max_size=12), st.floats(0.01, 100))
def test_a_constant_gain_is_found_whatever_noise_both_share(base: list[list[float]], gain: float) -> None:
    found = stats.ratio(base, [[s / gain for s in turn] for turn in base])
    assert found.median == pytest.approx(gain)
    assert [found.low, found.high] == pytest.approx([gain, gain])
    assert found.rounds == len(base)


def test_pairs_are_of_one_round_and_a_round_without_both_is_left_out() -> None:
    found = stats.ratio([[2.0], [8.0], [4.0]], [[1.0], [2.0], []])
    assert (found.median, found.rounds) == (3.0, 2)
    assert stats.ratio([[]], [[1.0]]).rounds == 0


def test_drift_is_never_negative() -> None:
    assert stats.drift(1.0000001) == 0.0
    assert stats.drift(0.99) == pytest.approx(0.01)


def test_rungs_are_chosen_by_name_and_an_unknown_one_is_refused_with_the_list() -> None:
    assert [r.name for r in select(["openvino-bf16", "torch-fp32"])] == ["torch-fp32", "openvino-bf16"]
    assert select(None) == LADDER
    with pytest.raises(ExportError, match=r"no rung 'torch': the rungs are torch-fp32-default-threads, "):
        select(["torch"])
    with pytest.raises(ExportError, match="no rung was named"):
        select([])


def test_the_baseline_is_pytorch_where_it_runs_else_the_plainest_that_does() -> None:
    assert baseline_of(["openvino-f32", "torch-fp32"]) == "torch-fp32"
    assert baseline_of(["openvino-int8-f32", "openvino-f32"]) == "openvino-f32"
    assert baseline_of(["openvino-int8-f32"]) == "openvino-int8-f32"
    assert baseline_of([]) is None
    assert baseline_first(LADDER)[0].name == "torch-fp32"
    assert sorted(r.name for r in baseline_first(LADDER)) == sorted(r.name for r in LADDER)


def test_one_cpu_is_taken_of_each_core_within_the_affinity(tmp_path: Path) -> None:
    for cpu, siblings in enumerate(["0,4", "1,5", "2,6", "3,7"] * 2):
        (tmp_path / f"cpu{cpu}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/topology/thread_siblings_list").write_text(siblings + "\n")
    assert one_cpu_per_core(frozenset(range(8)), tmp_path) == [0, 1, 2, 3]
    assert one_cpu_per_core(frozenset({4, 5, 1}), tmp_path) == [1, 4]
    assert one_cpu_per_core(frozenset({8, 9}), tmp_path) == [8, 9]


def test_what_others_take_is_what_is_busy_and_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(1000.0, 400.0, 50.0), (1100.0, 480.0, 70.0), (1100.0, 480.0, 900.0), (1000.0, 400.0, 50.0)])
    monkeypatch.setattr(machine, "_times", lambda: next(readings))
    others = machine.Others()
    assert others.share() == pytest.approx(0.6)
    assert others.share() == 0.0
    assert others.share() == 0.0


def test_our_own_work_and_that_of_ended_workers_counts_as_ours() -> None:
    before = machine._times()
    subprocess.run([sys.executable, "-c", "sum(range(10**7))"], check=True)
    after = machine._times()
    assert after[2] - before[2] > 0.05
    assert after[0] > before[0] > before[1] > 0


def test_pytorch_that_answers_otherwise_than_the_artifact_is_said_to_be_another_model() -> None:
    plain = next(r for r in made_up().results if r.name == "torch-fp32")
    assert stranger(plain) is None
    assert plain.accuracy is not None
    plain.accuracy.mean = 0.42
    assert (stranger(plain) or "").startswith(
        "torch-fp32 answers with mean cosine 0.4200 to the artifact's FP32 answers"
    )
    plain.accuracy = None
    assert stranger(plain) is None


@given(st.integers(0, 500), st.integers(2, 100))
def test_samples_are_spread_from_the_first_to_the_last(count: int, most: int) -> None:
    found = spread(count, most)
    assert found == sorted(set(found))
    assert len(found) <= min(count, most)
    if count:
        assert (found[0], found[-1]) == (0, count - 1)


def test_reference_rows_are_of_the_samples_chosen_a_row_each_or_a_row_a_token() -> None:
    encoded = [[1, 2], [1, 2, 3], [1]]
    pooled = np.arange(3, dtype=np.float32)[:, None]
    assert reference_rows(pooled, encoded, [0, 2]).ravel().tolist() == [0, 2]
    tokens = np.arange(6, dtype=np.float32)[:, None]
    assert reference_rows(tokens, encoded, [0, 2]).ravel().tolist() == [0, 1, 5]
    with pytest.raises(ExportError, match="5 rows for 3 samples"):
        reference_rows(tokens[:5], encoded, [0])


@pytest.mark.parametrize("length", [4, 17, 300])
def test_inputs_have_exactly_the_length_with_special_tokens_and_differ_by_row(tmp_path: Path, length: int) -> None:
    write_tokenizer(tmp_path)
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    first, second = (filled(tokenizer, TEXTS, length, row) for row in (0, 5))
    assert len(first) == len(second) == length
    assert (first[0], first[-1]) == (1, 2)
    assert first != second


def test_sources_are_told_apart_and_those_of_two_models_are_refused(tmp_path: Path) -> None:
    write_tiny(tmp_path / "one")
    write_tiny(tmp_path / "two", tiny_graph(layers=1))
    (tmp_path / "hf").mkdir()
    found = sort_sources([tmp_path / "hf", tmp_path / "one"])
    assert (found.directory, list(found.artifacts)) == (tmp_path / "hf", ["none"])
    document = json.loads((tmp_path / "two/manifest.json").read_text())
    document["quantization"]["scheme"] = "bf16"
    (tmp_path / "two/manifest.json").write_text(json.dumps(document))
    with pytest.raises(ExportError, match=r"two was made from other weights than .*one"):
        sort_sources([tmp_path / "one", tmp_path / "two"])
    with pytest.raises(ExportError, match="second artifact in scheme none"):
        sort_sources([tmp_path / "one", tmp_path / "one"])
    with pytest.raises(ExportError, match="one model at a time"):
        sort_sources([tmp_path / "hf", tmp_path])
    (tmp_path / "m.onnx").touch()
    with pytest.raises(ExportError, match=r"an \.onnx file needs the artifact"):
        sort_sources([tmp_path / "m.onnx"])
    with pytest.raises(ExportError, match="nowhere is no model directory"):
        sort_sources([tmp_path / "nowhere"])
