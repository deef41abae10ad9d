"""Naming what a layer sees, from matrices of every kind; and choosing where block-local attention begins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numaserve_models.errors import ExportError
from numaserve_models.source.limits import buckets, limits
from numaserve_models.switch import Timing, choose
from numaserve_models.validation import stretch
from numaserve_models.windows import Seen, check_declared, describe, probe_length

COUNT = 40
DISTANCE = np.subtract.outer(np.arange(COUNT), np.arange(COUNT))


def band(left: int, right: int, leading: int = 0) -> Seen:
    """Which key each query sees."""
    seen: Seen = (left >= DISTANCE) & (-right <= DISTANCE)
    seen[:, :leading] = True
    return seen


@given(st.integers(1, COUNT // 2 - 2), st.integers(0, 3))
def test_a_band_is_a_window_of_its_width(side: int, leading: int) -> None:
    prefix = "global+" if leading else ""
    assert describe(band(side, side, leading)) == f"{prefix}sliding:{2 * side}"


@given(st.integers(1, COUNT - 2))
def test_a_causal_band_is_a_causal_window(left: int) -> None:
    assert describe(band(left, 0)) == f"causal-sliding:{left}"


def test_everything_and_everything_before_have_names() -> None:
    assert describe(band(COUNT, COUNT)) == "full"
    assert describe(band(COUNT, 0)) == "causal"


@given(st.integers(0, COUNT - 1), st.integers(0, COUNT - 1))
def test_one_hole_in_a_window_is_refused(row: int, column: int) -> None:
    seen = band(12, 12)
    seen[row, column] = not seen[row, column]
    with pytest.raises(ExportError, match=r"neither full nor a sliding window|no window known"):
        describe(seen)


def test_a_lopsided_window_is_refused() -> None:
    with pytest.raises(ExportError, match="3 tokens to the left and 5 to the right"):
        describe(band(3, 5))


def test_a_layer_that_is_not_what_the_config_says_is_named() -> None:
    check_declared(["full", "sliding:8"], ["full", "sliding:8"], 64)
    check_declared(["full"], None, 64)
    with pytest.raises(ExportError, match=r"layer 2 computes full \(probed at 64 tokens\), config.json says sliding:8"):
        check_declared(["full", "full"], ["full", "sliding:8"], 64)
    with pytest.raises(ExportError, match=r"1 mixing layers, config.json describes 2"):
        check_declared(["full"], ["full", "full"], 64)


def test_windows_are_probed_beyond_their_width() -> None:
    assert probe_length(["full", "sliding:128"], 8192) == 168
    assert probe_length(["global+sliding:512"], 300) == 300
    assert probe_length(None, 8192) == 64


@given(
    st.none() | st.integers(8, 600),
    st.none() | st.integers(8, 1 << 24),
    st.none() | st.integers(8, 1 << 24),
    st.integers(8, 600),
)
def test_the_window_is_never_guessed_upwards(
    asked: int | None, chain: int | None, tokenizer: int | None, positions: int
) -> None:
    if asked is not None and asked > positions:
        with pytest.raises(ExportError, match=f"--max-tokens {asked} is beyond"):
            limits(asked, chain, tokenizer, positions)
        return
    found = limits(asked, chain, tokenizer, positions)
    assert found.max_tokens <= positions
    if asked is None:
        assert not found.untrained
    stated = [n for n in (chain, tokenizer) if n is not None and n < 1_000_000]
    assert found.untrained == bool(asked and stated and asked > min(stated))


@given(st.integers(8, 100_000))
def test_buckets_ascend_to_the_window(window: int) -> None:
    found = buckets(window)
    assert found[-1] == window
    assert found == sorted(set(found))


@given(st.lists(st.integers(0, 99), min_size=1, max_size=50), st.integers(1, 400))
def test_a_stretched_text_has_the_length_asked_for_and_keeps_its_ends(ids: list[int], length: int) -> None:
    found = stretch(ids, length)
    assert len(found) == min(length, max(len(ids), length)) if length > 2 else len(found) <= length
    if length > 2:
        assert (found[0], found[-1]) == (ids[0], ids[-1])


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([0.8, 0.9, 1.2, 1.5], 704),  # between 512 and 1024
        ([1.3, 1.4], 192),  # faster from the first length on
        ([0.8, 0.8, 0.8, 0.8, 0.9], None),
        ([0.8, 1.05, 0.9, 1.3, 1.4], 1472),  # one lucky win does not count
        ([], None),
    ],
)
def test_the_switch_lies_between_the_last_loss_and_the_next_win(ratios: list[float], expected: int | None) -> None:
    timings = [Timing(256 << i, ratio, 1.0) for i, ratio in enumerate(ratios)]
    assert choose(timings) == expected
