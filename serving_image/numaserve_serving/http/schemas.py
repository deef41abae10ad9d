"""Bodies of the OpenAI-shaped API."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

MAX_INPUTS = 2048
"""What OpenAI allows a request, so that existing clients need no change."""


class EmbeddingsRequest(BaseModel):
    """POST /v1/embeddings. ``input`` is checked by hand, so that a refusal can name the remedy."""

    model_config = ConfigDict(extra="forbid")

    input: Any
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None


class Embedding(BaseModel):
    """One vector: a list of floats, or base64 of little-endian float32."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Usage(BaseModel):
    """What was computed: tokens after truncation, special tokens included."""

    prompt_tokens: int
    total_tokens: int
    truncated_tokens: int = 0


class EmbeddingsResponse(BaseModel):
    """Answer of POST /v1/embeddings; ``model`` is name@space."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class ModelCard(BaseModel):
    """One entry of GET /v1/models."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "numaserve"


class ModelList(BaseModel):
    """GET /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]
