"""Names fit where Kubernetes puts them."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from numaserve_api import names
from numaserve_api.base import Lenient, Strict
from numaserve_api.conditions import ConditionType, Reason
from numaserve_api.revision import LENGTH

LABEL_LENGTH = 63


def test_the_name_of_a_child_fits_a_label() -> None:
    assert names.MAX_NAME_LENGTH + 1 + LENGTH <= LABEL_LENGTH


@pytest.mark.parametrize("word", [*Reason, *ConditionType])
def test_a_reason_is_one_camel_case_word(word: str) -> None:
    assert re.fullmatch("[A-Z][A-Za-z0-9]*", word)


def test_every_key_of_ours_is_under_our_group() -> None:
    ours = [v for k, v in vars(names).items() if k.startswith(("LABEL_", "ANNOTATION_"))]
    foreign = {names.LABEL_MANAGED_BY, names.ANNOTATION_POD_DELETION_COST}
    assert [v for v in ours if not v.startswith(f"{names.GROUP}/") and v not in foreign] == []
    assert len(set(ours)) == len(ours)


def test_a_strict_model_refuses_what_a_lenient_one_ignores() -> None:
    class Wanted(Strict):
        known: int

    class Told(Lenient):
        known: int

    with pytest.raises(ValidationError):
        Wanted.model_validate({"known": 1, "later": 2})
    assert Told.model_validate({"known": 1, "later": 2}).known == 1
