"""Likely personal data in samples: found by form and check digits, counted, and never shown.

A warning, not a proof: names and addresses have no form to go by, and an order number may look like a telephone's.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from numaserve_models.samples.read import Sample

_IBAN_LENGTHS = {
    "AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "CH": 21, "CR": 22,
    "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18, "FR": 27, "GB": 22,
    "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IS": 26, "IT": 27, "JO": 30,
    "KW": 30, "KZ": 20, "LB": 28, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MT": 31,
    "MU": 30, "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SE": 24,
    "SI": 19, "SK": 24, "SM": 27, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "XK": 20,
}  # fmt: skip
"""Characters of an IBAN by country (SWIFT's IBAN registry)."""
_DNI_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
SHOWN_LINES = 8


@dataclass(frozen=True, slots=True)
class Match:
    """A place in a text: what it looks like, and where."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One kind of personal data: how often it was found, the lines of the source, and where the first one begins."""

    kind: str
    count: int
    lines: tuple[int, ...]
    field: str
    character: int

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.lines[:SHOWN_LINES])) + (" …" if len(self.lines) > SHOWN_LINES else "")
        word = "line" if len(self.lines) == 1 else "lines"
        return (
            f"{self.kind}: {self.count} in {word} {shown}; the first at character {self.character} of its {self.field}"
        )


def luhn(digits: str) -> bool:
    """Whether the last digit of a card number is the check digit of the others (ISO/IEC 7812-1)."""
    doubled = (int(d) * (1 + i % 2) for i, d in enumerate(reversed(digits)))
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


def iban_holds(iban: str) -> bool:
    """Whether an IBAN without blanks has its country's length and its checksum (ISO 13616, MOD 97-10)."""
    if len(iban) != _IBAN_LENGTHS.get(iban[:2]):
        return False
    return int("".join(str(int(c, 36)) for c in iban[4:] + iban[:4])) % 97 == 1


def _iban(found: str) -> int:
    """Characters of the match that are an IBAN; a following word in capitals is not part of it."""
    length, kept = _IBAN_LENGTHS.get(found[:2], 0), 0
    for position, character in enumerate(found, 1):
        kept += character != " "
        if kept == length:
            return position if iban_holds(found[:position].replace(" ", "")) else 0
    return 0


def _card(found: str) -> int:
    digits = re.sub(r"\D", "", found)
    return len(found) if 13 <= len(digits) <= 19 and digits[0] in "23456" and luhn(digits) else 0


def _address(found: str) -> int:
    try:
        address = ipaddress.ip_address(found)
    except ValueError:
        return 0
    return 0 if address.is_loopback or address.is_unspecified or address.is_multicast else len(found)


def _telephone(found: str) -> int:
    return len(found) if 8 <= len(re.sub(r"\D", "", found)) <= 15 else 0


def _dni(found: str) -> int:
    number = found[:-1].translate(str.maketrans("XYZ", "012")).rstrip("-")
    return len(found) if _DNI_LETTERS[int(number) % 23] == found[-1] else 0


def _insee(found: str) -> int:
    digits = re.sub(r"[ .]", "", found).replace("2A", "19").replace("2B", "18")
    return len(found) if 97 - int(digits[:13]) % 97 == int(digits[13:]) else 0


def _ean13(found: str) -> int:
    digits = re.sub(r"\D", "", found)
    weighed = sum(int(d) * (3 if i % 2 else 1) for i, d in enumerate(digits[:-1]))
    return len(found) if -weighed % 10 == int(digits[-1]) else 0


Check = Callable[[str], int]
"""How many characters of a match are what they look like; 0 when none."""
_NATIONAL = "national id"
_FORMS: tuple[tuple[str, re.Pattern[str], Check], ...] = (
    ("IBAN", re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}"), _iban),
    ("credit card", re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])"), _card),
    (_NATIONAL, re.compile(r"(?<![\w-])(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])"), len),  # US SSN
    (_NATIONAL, re.compile(r"(?<![\w.])756\.\d{4}\.\d{4}\.\d{2}(?!\w)"), _ean13),  # Swiss AHV
    (_NATIONAL, re.compile(r"(?<!\w)[A-CEGHJ-PR-TW-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D](?!\w)"), len),  # British NINO
    (_NATIONAL, re.compile(r"(?<!\w)[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z](?!\w)"), len),  # Italian codice fiscale
    (_NATIONAL, re.compile(r"(?<!\w)(?:\d{8}|[XYZ]-?\d{7})-?[A-Z](?!\w)"), lambda found: _dni(found.replace("-", "")) and len(found)),  # Spanish DNI, NIE
    (_NATIONAL, re.compile(r"(?<!\w)[12] ?\d{2} ?\d{2} ?(?:2[AB]|\d{2}) ?\d{3} ?\d{3} ?\d{2}(?!\w)"), _insee),  # French NIR
    ("IP address", re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\d)"), _address),
    ("IP address", re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])"), _address),
    ("e-mail", re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"), len),
    ("telephone", re.compile(r"(?<![\w+])(?:\+|00)[1-9]\d{0,2}(?:[ ./()-]{0,3}\d){6,12}(?!\d)"), _telephone),
    ("telephone", re.compile(r"(?<![\w.-])\(?0\d{1,4}\)?[ /-]\d{2,4}(?:[ -]\d{2,4}){1,3}(?![\w-])"), _telephone),
    ("telephone", re.compile(r"(?<![\w.-])(?:\(\d{3}\) ?|\d{3}[-.])\d{3}[-.]\d{4}(?![\w-])"), _telephone),
)  # fmt: skip
"""In order: what an earlier form has taken is no longer looked at by a later one."""


def find(text: str) -> list[Match]:
    """Likely personal data of one text, in order."""
    found: list[Match] = []
    taken = bytearray(len(text))
    for kind, form, check in _FORMS:
        for match in form.finditer(text):
            end = match.start() + check(match.group())
            if end > match.start() and not any(taken[match.start() : end]):
                taken[match.start() : end] = b"\1" * (end - match.start())
                found.append(Match(kind, match.start(), end))
    return sorted(found, key=lambda match: match.start)


def scan(samples: Iterable[Sample]) -> list[Suspicion]:
    """Every kind found in samples, most frequent first."""
    places: dict[str, list[tuple[int, str, int]]] = {}
    for sample in samples:
        for field, value in _fields(sample):
            for match in find(value):
                places.setdefault(match.kind, []).append((sample.line, field, match.start + 1))
    told = [
        Suspicion(kind, len(found), tuple(dict.fromkeys(line for line, *_ in found)), *found[0][1:])
        for kind, found in places.items()
    ]
    return sorted(told, key=lambda suspicion: (-suspicion.count, suspicion.kind))


def _fields(sample: Sample) -> Iterator[tuple[str, str]]:
    """Everything that is written, by the name of its field."""
    yield "text", sample.text
    if sample.query is not None:
        yield "query", sample.query
    if sample.id is not None:
        yield "id", sample.id
    if sample.label is not None:
        yield "label", sample.label if isinstance(sample.label, str) else json.dumps(sample.label, ensure_ascii=False)
