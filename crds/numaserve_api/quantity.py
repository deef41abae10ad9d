"""Kubernetes quantities: parsed exactly, compared by value, written in one canonical form.

Source: k8s.io/apimachinery/pkg/api/resource, "Quantity".
"""

from __future__ import annotations

import re
from decimal import Decimal

_PATTERN = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<suffix>m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_BINARY = {f"{letter}i": 1024 ** (power + 1) for power, letter in enumerate("KMGTPE")}
_DECIMAL = {"": Decimal(1), "m": Decimal("0.001"), **{c: Decimal(1000) ** (p + 1) for p, c in enumerate("kMGTPE")}}


def parse_quantity(text: str) -> Decimal:
    """The exact value of a quantity, in its base unit (bytes, CPUs).

    Raises ValueError naming the text when it is not a quantity.
    """
    match = _PATTERN.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a quantity: write a number with an optional suffix, e.g. 4Gi, 512Mi or 500m")
    suffix = match["suffix"] or ""
    factor = Decimal(_BINARY[suffix]) if suffix in _BINARY else _DECIMAL[suffix]
    return Decimal(match["number"]) * factor


def canonical_quantity(text: str) -> str:
    """One spelling a value: `2048Mi` and `2Gi` both give `2Gi`; fractions of a unit are given in milli."""
    value = parse_quantity(text)
    if value != value.to_integral_value():
        return f"{int((value * 1000).to_integral_value(rounding='ROUND_CEILING'))}m"
    whole = int(value)
    for suffix, factor in reversed(_BINARY.items()):
        if whole and whole % factor == 0:
            return f"{whole // factor}{suffix}"
    return str(whole)
