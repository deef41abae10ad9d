"""What is recommended, by properties, and the race with a fake clock: no model is run here."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from numaserve_api.config import Scheme
from numaserve_models.bench.stats import latency
from numaserve_models.errors import ExportError
from numaserve_models.quantize import Agreement, Bounds
from numaserve_models.recommend.decide import Candidate, Goal, choose, common, halve, ladder, shortfall, variants
from numaserve_models.recommend.rounds import FINAL_CALLS, Race

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
