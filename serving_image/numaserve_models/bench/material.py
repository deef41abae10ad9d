"""What is benchmarked: the directories given, and one set of inputs for every rung."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from numaserve_api.config import Output, Pooling, Scheme, Task
from numaserve_api.manifest import CONFIG_FILE, MANIFEST_FILE
from numaserve_models import texts
from numaserve_models.artifact import Artifact, open_artifact
from numaserve_models.errors import ExportError
from numaserve_models.running import Array, Text, encode, load_tokenizer

SAMPLES = 96
"""Samples whose answers are compared, spread evenly over the artifact's."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The paths given, by what they are."""

    directory: Path | None = None
    onnx: Path | None = None
    artifacts: Mapping[Scheme, Artifact] = field(default_factory=dict)

    @property
    def facts(self) -> Artifact | None:
        """The artifact that describes the model: the FP32 one where there is one."""
        return self.artifacts.get(Scheme.NONE) or next(iter(self.artifacts.values()), None)


@dataclass(frozen=True, slots=True)
class Material:
    """The model's facts and its inputs. Lengths in tokens; ``reference`` holds FP32 rows of the samples chosen."""

    name: str
    task: Task
    output: Output
    pooling: Pooling
    normalize: bool
    lengths: tuple[int, ...]
    encoded: list[list[int]]
    inputs: dict[int, list[list[int]]]
    reference: Array | None

    def write(self, path: Path) -> None:
        """As workers read it."""
        document = {"samples": self.encoded, "lengths": {str(n): ids for n, ids in self.inputs.items()}}
        path.write_text(json.dumps(document), encoding="utf-8")


def sort_sources(paths: Sequence[Path]) -> Sources:
    """Tell model directories, ONNX files and artifacts apart. Raises ExportError where they cannot go together."""
    directories: list[Path] = []
    files: list[Path] = []
    artifacts: dict[Scheme, Artifact] = {}
    for path in paths:
        if path.suffix == ".onnx" and path.is_file():
            files.append(path)
        elif (path / MANIFEST_FILE).is_file() and (path / CONFIG_FILE).is_file():
            _add(artifacts, open_artifact(path))
        elif path.is_dir():
            directories.append(path)
        else:
            raise ExportError(f"{path} is no model directory, artifact directory or .onnx file")
    if len(directories) > 1 or len(files) > 1:
        raise ExportError("one model at a time: give at most one model directory and one .onnx file, and its artifacts")
    if not directories and not artifacts:
        raise ExportError("an .onnx file needs the artifact made from it beside it: it says what the model answers")
    return Sources(directories[0] if directories else None, files[0] if files else None, artifacts)


def _add(artifacts: dict[Scheme, Artifact], found: Artifact) -> None:
    scheme = found.manifest.quantization.scheme
    if scheme in artifacts:
        raise ExportError(f"{found.root} is a second artifact in scheme {scheme}: give one of each")
    for other in artifacts.values():
        if other.manifest.model.weights_digest != found.manifest.model.weights_digest:
            raise ExportError(f"{found.root} was made from other weights than {other.root}: bench one model at a time")
    artifacts[scheme] = found


def gather(
    sources: Sources, lengths: Sequence[int] | None, batch: int, describe: Callable[[Path], dict[str, Any]]
) -> Material:
    """Facts and inputs from the artifact, or from what ``describe`` says of the directory. Raises ExportError."""
    artifact = sources.facts
    if artifact is not None:
        facts = artifact.manifest.model
        told: dict[str, Any] = {
            "task": facts.task, "output": facts.output, "pooling": facts.pooling, "normalize": facts.normalize,
            "maxTokens": facts.max_tokens, "buckets": artifact.config.buckets, "tokenizer": artifact.tokenizer,
            "side": artifact.config.window.truncate_side,
        }  # fmt: skip
        samples, reference = artifact.samples(), artifact.reference()
    else:
        told, samples, reference = describe(_present(sources.directory)), [], None
    task, output = Task(told["task"]), Output(told["output"])
    tokenizer = load_tokenizer(Path(told["tokenizer"]))
    if told.get("lowerCase"):
        texts.lower_case(tokenizer)
    if not samples:
        samples, reference = texts.default_samples(task, output, told["maxTokens"]), None
    given = texts.inputs(samples, task)
    encoded = encode(tokenizer, given, told["maxTokens"], told.get("side", "right"))
    chosen = spread(len(encoded), SAMPLES)
    wanted = tuple(sorted(set(lengths or told["buckets"])))
    _refuse_lengths(wanted, told["maxTokens"], batch)
    return Material(
        name=(artifact.root if artifact else _present(sources.directory)).resolve().name, task=task, output=output,
        pooling=Pooling(told["pooling"]), normalize=told["normalize"], lengths=wanted,
        encoded=[encoded[i] for i in chosen],
        inputs={n: [filled(tokenizer, given, n, row) for row in range(batch)] for n in wanted},
        reference=None if reference is None else reference_rows(reference, encoded, chosen),
    )  # fmt: skip


def spread(count: int, most: int) -> list[int]:
    """At most ``most`` indices of ``count``, evenly apart."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def reference_rows(reference: Array, encoded: Sequence[Sequence[int]], chosen: Sequence[int]) -> Array:
    """Rows of the samples chosen: one a sample, or one a token where the reference has as many rows as tokens."""
    if len(reference) == len(encoded):
        return reference[list(chosen)]
    starts = np.concatenate([[0], np.cumsum([len(e) for e in encoded])])
    if len(reference) != starts[-1]:
        raise ExportError(
            f"reference.npy has {len(reference)} rows for {len(encoded)} samples: export the artifact again"
        )
    return np.concatenate([reference[starts[i] : starts[i + 1]] for i in chosen])


def filled(tokenizer: Tokenizer, samples: Sequence[Text], length: int, row: int) -> list[int]:
    """Exactly ``length`` token ids of sample texts one after the other, special tokens where the model expects them."""
    turned = [*samples[row % len(samples) :], *samples[: row % len(samples)]]
    words = [sample if isinstance(sample, str) else sample[1] for sample in turned]
    query = None if isinstance(turned[0], str) else turned[0][0]
    text = ""
    while len(text) <= 64 * length + 64:  # a token of more than 64 characters on average is no text
        text = " ".join([text, *words]).strip()
        [ids] = encode(tokenizer, [text if query is None else (query, text)], length)
        if len(ids) == length:
            return ids
        words = words * 2
    raise ExportError(
        f"the samples cannot fill {length} tokens: the tokenizer makes {len(ids)} of {len(text)} characters"
    )


def _refuse_lengths(lengths: Sequence[int], most: int, batch: int) -> None:
    if batch < 1:
        raise ExportError(f"a batch of {batch} texts is impossible: ask for 1 or more")
    for length in lengths:
        if not 4 <= length <= most:
            raise ExportError(f"length {length} is outside what the model takes (4 to {most} tokens): leave it out")


def _present(path: Path | None) -> Path:
    if path is None:
        raise ExportError("no model directory was given")
    return path
