"""The base of every model of the contract: strict, frozen, camelCase outside, snake_case inside."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from numaserve_api.quantity import parse_quantity

SENTENCE_KEY = "patternErrorMessage"
"""Key of JSON schemas that editors show instead of a bare pattern; the CRD turns it into a CEL rule."""


@dataclass(frozen=True, slots=True)
class Matches:
    """A pattern (anchored, in the syntax RE2 and Python share) with the sentence that explains it.

    The bare pattern would tell a user *that* a value is wrong; the sentence tells how to write it.
    """

    pattern: str
    sentence: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern, SENTENCE_KEY: self.sentence}

    def check(self, text: str) -> str:
        """The text itself. Raises ValueError with the sentence."""
        if not re.fullmatch(self.pattern, text):
            raise ValueError(self.sentence)
        return text


@dataclass(frozen=True, slots=True)
class CountOrPercent:
    """Kubernetes' IntOrString where the string is a percentage: one sentence instead of a union's two errors."""

    _PERCENT = "^(0|[1-9][0-9]?|100)%$"
    SENTENCE = "must be a count from 0 to 1000 or a percentage from 0% to 100%"
    CEL = f"type(self) == string ? self.matches('{_PERCENT}') : (self >= 0 && self <= 1000)"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"x-kubernetes-int-or-string": True, "maxLength": 4}

    def check(self, value: object) -> int | str:
        """The value itself. Raises ValueError with the sentence."""
        if isinstance(value, str) and re.fullmatch(self._PERCENT, value):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1000:
            return value
        raise ValueError(self.SENTENCE)


def _quantity(text: str) -> str:
    parse_quantity(text)
    return text


Digest = Annotated[
    str,
    StringConstraints(max_length=71),
    Matches(r"^sha256:[a-f0-9]{64}$", "must be sha256: and 64 lowercase hexadecimal digits, as sha256sum prints them"),
]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Quantity = Annotated[str, StringConstraints(max_length=32), AfterValidator(_quantity)]
IntOrPercent = Annotated[int | str, CountOrPercent()]


class Strict(BaseModel):
    """A model that refuses unknown keys: a misspelt field must never be silently ignored."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        populate_by_name=True,
        validate_default=True,
        allow_inf_nan=False,
    )


class Lenient(Strict):
    """A model read from a cluster or a pod, where a newer writer may know more fields than we do."""

    model_config = ConfigDict(extra="ignore")
