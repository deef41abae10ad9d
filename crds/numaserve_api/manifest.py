"""manifest.json: every file of an artifact with its digest, and the model's facts.

``model.hash`` of config_deploy.yaml is the SHA-256 of manifest.json's bytes; config_deploy.yaml
itself lies outside the manifest, so that deployment choices do not change the digest.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from numaserve_api.base import Digest, Matches, Strict
from numaserve_api.config import Output, Pooling, Quantization, Space, Task

MANIFEST_FILE = "manifest.json"
CONFIG_FILE = "config_deploy.yaml"

RelativePath = Annotated[
    str,
    StringConstraints(max_length=512),
    Matches(
        r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*$",
        "must be a path inside the artifact: names of letters, digits and _ . - that begin with no dot",
    ),
]


class FileEntry(Strict):
    """One file of the artifact, relative to its directory."""

    path: RelativePath
    size: int = Field(ge=0, description="Bytes.")
    digest: Digest


class ModelFacts(Strict):
    """What the graph in this artifact computes."""

    task: Task
    output: Output = Output.POOLED
    pooling: Pooling
    normalize: bool
    dimensions: list[int]
    max_tokens: int
    positions: int
    layers: list[str] = Field(description="What each layer attends to, e.g. `full` or `sliding:128`.")
    architecture: str | None = None
    trained_tokens: int | None = Field(
        default=None, description="Longest sequence the model was trained on, where it says so; above it is untrained."
    )
    switch_tokens: int | None = Field(
        default=None, description="Batches longer than this run block-local where layers slide; absent: one form only."
    )
    labels: list[str] | None = Field(default=None, description="Labels in the order of the answer's components.")
    activation: Literal["none", "sigmoid", "softmax"] | None = Field(
        default=None, description="What makes scores of the graph's logits."
    )
    prompts: dict[str, str] | None = None
    default_prompt: str | None = None
    space: Space
    weights_digest: Digest
    tokenizer_digest: Digest


class ArtifactFiles(Strict):
    """Which file plays which part. Vectors are .npy float32 [n, dimension]; texts are JSON lines with `text`."""

    graph: RelativePath = "openvino_model.xml"
    weights: RelativePath = "openvino_model.bin"
    tokenizer: RelativePath = "tokenizer.json"
    samples: RelativePath | None = None
    reference: RelativePath | None = None
    selftest: RelativePath | None = Field(
        default=None, description="JSON: list of {bucket, text, vector} the warmed server must reproduce (cosine)."
    )


class Manifest(Strict):
    """The manifest document, version 1."""

    version: Literal[1] = 1
    files: list[FileEntry]
    parts: ArtifactFiles
    model: ModelFacts
    quantization: Quantization
    provenance: dict[str, Any]


def manifest_digest(content: bytes) -> str:
    """``model.hash`` of an artifact whose manifest.json has these bytes."""
    return "sha256:" + hashlib.sha256(content).hexdigest()
