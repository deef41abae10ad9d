"""Quantities are compared by value and written one way."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numaserve_api.quantity import canonical_quantity, parse_bytes, parse_quantity

FACTORS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000 ** (power + 1)) for power, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Fraction(1024 ** (power + 1)) for power, letter in enumerate("KMGTPE")},
}
numbers = st.decimals(min_value=0, max_value=10**12, places=3, allow_nan=False).map(str)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2Gi", 2 * 1024**3),
        ("2048Mi", 2 * 1024**3),
        ("1G", 10**9),
        ("500m", Decimal("0.5")),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("5E-1", Decimal("0.5")),
        (".5", Decimal("0.5")),
        ("5.", 5),
        ("-1Ki", -1024),
        ("+1", 1),
        ("100n", Decimal("1e-7")),
    ],
)
def test_a_quantity_has_its_exact_value(text: str, value: Decimal | int) -> None:
    assert parse_quantity(text) == value


@given(numbers, st.sampled_from(sorted(FACTORS)))
def test_every_quantity_has_the_value_of_exact_fractions(number: str, suffix: str) -> None:
    assert Fraction(parse_quantity(number + suffix)) == Fraction(number) * FACTORS[suffix]


@given(st.integers(0, 2**53), st.sampled_from(["Ki", "Mi", "Gi", "Ti"]))
def test_equal_values_have_one_spelling(count: int, suffix: str) -> None:
    plain = str(count * int(FACTORS[suffix]))
    assert canonical_quantity(f"{count}{suffix}") == canonical_quantity(plain)


@given(numbers, st.sampled_from(["", "m", "k", "M", "Mi", "Gi"]))
def test_the_canonical_form_is_its_own(number: str, suffix: str) -> None:
    once = canonical_quantity(number + suffix)
    assert canonical_quantity(once) == once


def test_spellings_of_two_gibibytes_are_one() -> None:
    assert {canonical_quantity(t) for t in ("2Gi", "2048Mi", "2097152Ki", "2147483648", "2147483648.0")} == {"2Gi"}


def test_fractions_are_written_in_milli_rounded_up() -> None:
    assert canonical_quantity("0.5") == "500m"
    assert canonical_quantity("1u") == "1m"
    assert canonical_quantity("1023999.001m") == "1Ki"


def test_bytes_are_whole_and_rounded_up() -> None:
    assert parse_bytes("1.5Ki") == 1536
    assert parse_bytes("100m") == 1


@pytest.mark.parametrize(
    "text", ["", "4Gb", "Gi", "1 Gi", "4gi", "1e", "--1", "NaN", "1_000", "\u0664", "9" * 65, "1Gi\n"]
)
def test_what_is_no_quantity_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity: write a number") as caught:
        parse_quantity(text)
    assert repr(text[:64]) in str(caught.value)
