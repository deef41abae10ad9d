"""Kubernetes quantities: parsed exactly, compared by value, written in one canonical form.

Source: k8s.io/apimachinery/pkg/api/resource, "Quantity".
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Context, Decimal

_PATTERN = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))"
    r"(?:(?P<suffix>n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_BINARY = {f"{letter}i": 1024 ** (power + 1) for power, letter in enumerate("KMGTPE")}
_SCALES = {
    **{suffix: Decimal(factor) for suffix, factor in _BINARY.items()},
    **{letter: Decimal(1000) ** (power + 1) for power, letter in enumerate("kMGTPE")},
    **{letter: Decimal(1000) ** -(power + 1) for power, letter in enumerate("mun")},
}
_EXACT = Context(prec=2048)
"""Wide enough that no quantity we accept is ever rounded: 64 digits, a factor, an exponent of three digits."""
MAX_LENGTH = 64


def parse_quantity(text: str) -> Decimal:
    """The exact value of a quantity, in its base unit (bytes, CPUs).

    Raises ValueError naming the text when it is not a quantity.
    """
    match = _PATTERN.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if not match:
        raise ValueError(
            f"{text[:MAX_LENGTH]!r} is not a quantity: write a number with an optional suffix, e.g. 4Gi, 512Mi or 500m"
        )
    number = Decimal(match["number"])
    if match["exponent"]:
        return _EXACT.scaleb(number, int(match["exponent"]))
    return _EXACT.multiply(number, _SCALES[match["suffix"]]) if match["suffix"] else number


def parse_bytes(text: str) -> int:
    """A quantity of memory in whole bytes, rounded up as the API server rounds. Raises ValueError."""
    return int(parse_quantity(text).to_integral_value(ROUND_CEILING, _EXACT))


def canonical_quantity(text: str) -> str:
    """One spelling a value: `2048Mi` and `2Gi` both give `2Gi`; fractions of a unit are given in milli, rounded up.

    Raises ValueError when the text is not a quantity.
    """
    milli = int(_EXACT.scaleb(parse_quantity(text), 3).to_integral_value(ROUND_CEILING, _EXACT))
    whole, rest = divmod(milli, 1000)
    if rest:
        return f"{milli}m"
    for suffix, factor in reversed(_BINARY.items()):
        if whole and whole % factor == 0:
            return f"{whole // factor}{suffix}"
    return str(whole)
