"""config_deploy.yaml: how one artifact is served. ``spec.config`` of the resource is this document.

Fields are only *defaulted at read*, never in the CRD schema: a default written into stored objects
would change every revision hash when a later version adds a field (see docs: revision identity).
"""

from __future__ import annotations

import itertools
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from numaserve_api.base import Digest, Matches, Strict


class Task(StrEnum):
    """What the model answers."""

    EMBEDDING = "embedding"
    CLASSIFICATION = "classification"
    TOKEN_CLASSIFICATION = "tokenClassification"  # noqa: S105 -- tokens of a text
    RERANK = "rerank"


class Output(StrEnum):
    """Shape of an embedding answer: one vector a text, one a token, or a sparse vector."""

    POOLED = "pooled"
    TOKENS = "tokens"
    SPARSE = "sparse"


class Pooling(StrEnum):
    """How token vectors become one vector; ``auto`` is what the model's own files say."""

    AUTO = "auto"
    CLS = "cls"
    MEAN = "mean"
    LAST = "last"


class Overflow(StrEnum):
    """What happens to a text longer than the window."""

    TRUNCATE = "truncate"
    REJECT = "reject"
    SLIDE = "slide"


class Scheme(StrEnum):
    """Weight format. ``fp16`` is deliberately absent: it brings no gain on CPUs."""

    NONE = "none"
    BF16 = "bf16"
    INT8_WEIGHTS = "int8-weights"
    INT8 = "int8"
    INT4_WEIGHTS = "int4-weights"


SCHEME_FP16 = "spec.config.quantization.scheme fp16 is refused: it brings no gain on CPUs; use bf16 or int8-weights"
SCHEME_KNOWN = f"spec.config.quantization.scheme must be one of {', '.join(Scheme)}"


def _known_scheme(value: Any) -> Any:
    if value == "fp16":
        raise ValueError(SCHEME_FP16)
    if value not in list(Scheme):
        raise ValueError(SCHEME_KNOWN)
    return value


SOURCE_SCHEMES = ("pvc", "hf", "s3", "oci", "https", "file")
Source = Annotated[
    str,
    StringConstraints(max_length=1024),
    Matches(
        rf"^({'|'.join(SOURCE_SCHEMES)})://[^\s]+$",
        "must be pvc://CLAIM/PATH, hf://OWNER/NAME@REVISION, s3://, oci://, https:// or file:// without spaces",
    ),
]
PromptName = Annotated[
    str,
    StringConstraints(max_length=63),
    Matches(r"^[A-Za-z0-9_.-]{1,63}$", "must be 1 to 63 letters, digits, dashes, dots and underscores"),
]
Space = Annotated[
    str,
    StringConstraints(max_length=128),
    Matches(
        r"^[A-Za-z0-9][A-Za-z0-9._@/:-]*$",
        "must begin with a letter or digit and hold only letters, digits and . _ @ / : - as in minilm-l6@1",
    ),
]

BUCKETS_ASCEND = "spec.config.window.buckets must be strictly ascending, e.g. [64, 128, 256]"
BUCKETS_WITHIN = "spec.config.window.buckets must all be at most window.maxTokens"
DIMENSIONS_UNIQUE = "spec.config.model.dimensions names a size twice: keep each once, the default first"


class ModelConfig(Strict):
    """Which model, and what its answers are."""

    source: Source = Field(
        description="Where the artifact lies: pvc://CLAIM/PATH, hf://, s3://, oci://, https:// or file://."
    )
    hash: Digest = Field(description="Digest of the artifact's manifest.json; another digest is never served.")
    task: Task = Field(description="What the model answers.")
    output: Output = Field(default=Output.POOLED, description="One vector a text, one a token, or sparse.")
    pooling: Pooling = Field(default=Pooling.AUTO, description="How token vectors become one vector.")
    normalize: bool = Field(default=True, description="Whether vectors have length one.")
    dimensions: Annotated[list[Annotated[int, Field(ge=1, le=65536)]], Field(min_length=1, max_length=16)] | None = (
        Field(default=None, description="Sizes a caller may ask for; the first is the default.")
    )
    prompts: (
        Annotated[dict[PromptName, Annotated[str, StringConstraints(max_length=4096)]], Field(max_length=64)] | None
    ) = Field(default=None, description="Prompts as shipped with the model; part of its space.")
    default_prompt: PromptName | None = Field(
        default=None, description="Prompt used when a caller names none; `none` for no prompt."
    )
    space: Space | None = Field(default=None, description="Name of the embedding space, e.g. minilm-l6@1.")
    trust_remote_code: bool = Field(
        default=False, description="Refused unless the operator's policy names a sandbox runtime class."
    )

    @model_validator(mode="after")
    def _each_dimension_once(self) -> ModelConfig:
        if len(set(self.dimensions or [])) != len(self.dimensions or []):
            raise ValueError(DIMENSIONS_UNIQUE)
        return self


class Window(Strict):
    """How long a text may be, in tokens, special tokens included."""

    max_tokens: int = Field(ge=1, le=1_048_576, description="Longest sequence, in tokens with special tokens.")
    buckets: Annotated[list[Annotated[int, Field(ge=1, le=1_048_576)]], Field(min_length=1, max_length=32)] | None = (
        Field(default=None, description="Lengths warmed before the pod is ready: ascending, at most maxTokens.")
    )
    overflow: Overflow = Field(default=Overflow.TRUNCATE, description="truncate, reject or slide.")
    stride: Annotated[int, Field(ge=1, le=1_048_576)] | None = Field(
        default=None, description="Step of `slide`, in tokens."
    )
    truncate_side: Literal["left", "right"] = Field(default="right", description="Side cut by `truncate`.")

    @model_validator(mode="after")
    def _buckets_ascend_within_window(self) -> Window:
        buckets = self.buckets or []
        if any(a >= b for a, b in itertools.pairwise(buckets)):
            raise ValueError(BUCKETS_ASCEND)
        if any(bucket > self.max_tokens for bucket in buckets):
            raise ValueError(BUCKETS_WITHIN)
        return self


class Calibration(Strict):
    """The sample set a static quantisation was calibrated on."""

    hash: Digest
    samples: int = Field(ge=1, le=1_000_000)


class Quantization(Strict):
    """How weights are stored and how activations are computed."""

    scheme: Annotated[Scheme, BeforeValidator(_known_scheme)] = Field(
        description="none, bf16, int8-weights, int8 or int4-weights."
    )
    activations: Literal["f32", "bf16"] = Field(
        default="f32", description="Execution hint where the scheme leaves a choice."
    )
    dynamic_group: Annotated[int, Field(ge=0, le=4096)] | None = Field(
        default=None,
        description="Dynamic activation quantization group for int8-weights (default 128); 0 switches it off.",
    )
    calibration: Calibration | None = None


DEFAULT_DYNAMIC_GROUP = 128
"""Measured fastest at equal accuracy on AVX-512 VNNI (see docs: serving design)."""


class ConfigDeploy(Strict):
    """The config_deploy.yaml document, version 1."""

    version: Literal[1] = Field(description="Version of this document.")
    model: ModelConfig
    window: Window
    quantization: Quantization
    threads: int = Field(ge=1, le=1024, description="Inference threads, each on a physical core of its own.")

    @property
    def precision(self) -> Literal["f32", "bf16"]:
        """What floating-point operations are computed in; the runtime is never left to choose."""
        bf16 = self.quantization.scheme is Scheme.BF16 or self.quantization.activations == "bf16"
        return "bf16" if bf16 else "f32"

    @property
    def dynamic_group(self) -> int:
        """Group size in elements handed to the runtime; 0 unless the scheme is int8-weights."""
        if self.quantization.scheme is not Scheme.INT8_WEIGHTS:
            return 0
        group = self.quantization.dynamic_group
        return DEFAULT_DYNAMIC_GROUP if group is None else group

    @property
    def buckets(self) -> list[int]:
        """Ascending warm-up lengths in tokens; the window itself when none is named."""
        return list(self.window.buckets or [self.window.max_tokens])
