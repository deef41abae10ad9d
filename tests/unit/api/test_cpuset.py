"""The kernel's CPU lists are read in every syntax and written in one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numaserve_api.cpuset import format_cpus, parse_cpus


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("", set()),
        ("\n", set()),
        ("0", {0}),
        ("0-3,8", {0, 1, 2, 3, 8}),
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        (" 0-1 , 4 ", {0, 1, 4}),
        ("0-6:2", {0, 2, 4, 6}),
        ("0-7:2/4", {0, 1, 4, 5}),
        ("0-30:1/2", set(range(0, 31, 2))),
        ("4-4", {4}),
        ("3,1,2,1", {1, 2, 3}),
        ("0-1,", {0, 1}),
    ],
)
def test_a_list_names_its_cpus(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus


@given(st.frozensets(st.integers(0, 1023), max_size=80))
def test_what_is_written_is_read_back(cpus: frozenset[int]) -> None:
    assert parse_cpus(format_cpus(cpus)) == cpus


@given(st.frozensets(st.integers(0, 200), max_size=80))
def test_runs_are_written_as_ranges_in_order(cpus: frozenset[int]) -> None:
    parts = [p.split("-") for p in format_cpus(cpus).split(",") if p]
    starts, ends = [int(p[0]) for p in parts], [int(p[-1]) for p in parts]
    assert all(end + 1 < start for end, start in zip(ends, starts[1:], strict=False))


def test_the_empty_set_is_the_empty_text() -> None:
    assert format_cpus([]) == ""


@pytest.mark.parametrize(
    "text", ["a", "1-", "-1", "3-1", "0-3:0", "0-3:4/2", "0-99999999", "0x3", "1;2", "\u0663", "0-3:1/0"]
)
def test_a_part_that_is_no_cpu_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="in the CPU list") as caught:
        parse_cpus(f"0,{text}")
    assert repr(text) in str(caught.value)
