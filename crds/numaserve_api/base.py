"""The base of every model of the contract: strict, frozen, camelCase outside, snake_case inside."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, StringConstraints
from pydantic.alias_generators import to_camel

DIGEST_PATTERN = r"^sha256:[a-f0-9]{64}$"

Digest = Annotated[str, StringConstraints(pattern=DIGEST_PATTERN, max_length=71)]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=253)]
Quantity = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$", max_length=32),
]


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
