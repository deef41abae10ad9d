"""Likely personal data: found where it is, not where it only looks so, and never repeated."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numaserve_models.samples import sample_texts
from numaserve_models.samples.privacy import find, luhn, scan
from numaserve_models.samples.read import Sample

PERSONAL = [
    ("e-mail", "jane.doe+x@mail.example.org"),
    ("IBAN", "DE89 3704 0044 0532 0130 00"),
    ("IBAN", "GB82WEST12345698765432"),
    ("credit card", "4111 1111 1111 1111"),
    ("credit card", "378282246310005"),
    ("IP address", "203.0.113.9"),
    ("IP address", "2001:db8::7"),
    ("telephone", "+41 44 668 18 00"),
    ("telephone", "(415) 555-0132"),
    ("telephone", "030 1234 5678"),
    ("national id", "078-05-1120"),
    ("national id", "756.9217.0769.85"),
    ("national id", "12345678Z"),
]
HARMLESS = [
    "version 1.2.3", "order 48213 of 2024-02-29", "at 12:30:45", "pi is 3.14159265358979", "1,000,000,000 lines",
    "127.0.0.1 and ::1", "4111 1111 1111 1112", "GB82WEST12345698765431", "12345678A", "a @ b", "std::vector<int>",
    "999.1.1.1", "ISBN 978-3-16-148410-0", "price: € 1'299.50",
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), PERSONAL)
def test_personal_data_is_found_in_the_midst_of_a_text(kind: str, value: str) -> None:
    [match] = find(f"Write to {value}, please.")
    assert (match.kind, match.start, match.end) == (kind, 9, 9 + len(value))


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_so_is_left_alone(text: str) -> None:
    assert find(text) == []


@pytest.mark.parametrize("field", ["text", "query", "id", "label"])
def test_every_field_is_looked_at_and_none_is_repeated(field: str) -> None:
    for _, value in PERSONAL:
        sample = Sample(**{"text": "a", "line": 41, "index": 0, field: f"Hello {value}."})  # type: ignore[arg-type]
        [suspicion] = scan([sample])
        assert str(suspicion) == f"{suspicion.kind}: 1 in line 41; the first at character 7 of its {field}"


def test_entities_of_a_label_are_looked_at() -> None:
    [suspicion] = scan([Sample("a", 1, 0, label=[{"value": "jane@example.org"}])])
    assert suspicion.kind == "e-mail"


def test_the_most_frequent_kind_comes_first_with_its_lines() -> None:
    found = scan([Sample("203.0.113.9 a@example.org", n, n) for n in range(1, 12)] + [Sample("b@example.org", 20, 20)])
    assert [(s.kind, s.count) for s in found] == [("e-mail", 12), ("IP address", 11)]
    assert "lines 1, 2, 3, 4, 5, 6, 7, 8 …" in str(found[0])


@given(st.text(st.sampled_from("0123456789 .-+@:AZXabcDE()/"), max_size=300))
def test_matches_lie_in_the_text_and_do_not_overlap(text: str) -> None:
    found = find(text)
    ends = [0, *(match.end for match in found)]
    assert all(before <= match.start < match.end <= len(text) for before, match in zip(ends, found, strict=False))


@given(st.integers(min_value=10**11, max_value=10**15))
def test_one_check_digit_in_ten_holds(number: int) -> None:
    assert sum(luhn(f"{number}{digit}") for digit in range(10)) == 1


@pytest.mark.parametrize(
    ("unit", "kind", "count"),
    [
        ("203.0.113.9 ", "IP address", 16_666), ("a@b.de ", "e-mail", 28_571), ("a", "", 0), ("1", "", 0), (":", "", 0),
        ("1 ", "", 0), ("@a.", "", 0), ("(", "", 0),
    ],
)  # fmt: skip
def test_the_longest_text_is_searched_to_its_end(unit: str, kind: str, count: int) -> None:
    """Work that grows with the square of a text's length would not end here."""
    found = find((unit * 200_000)[:200_000])
    if count:
        assert [match.kind for match in found].count(kind) >= count
        assert found[-1].end > 199_980


def test_builtin_texts_hold_no_ones_data() -> None:
    kinds = {match.kind for text in sample_texts(max_tokens=8192) for match in find(text)}
    assert kinds <= {"telephone"}  # a company's switchboard stands among the odd ones
