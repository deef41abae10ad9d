"""What goes into a model: a text, or for a cross-encoder a query and a text; and the tokenizer they go through."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers

from numaserve_api.config import Output, Task
from numaserve_models.errors import ExportError
from numaserve_models.running import Text
from numaserve_models.samples import sample_texts

COUNTS = {Output.POOLED: 384, Output.TOKENS: 96, Output.SPARSE: 64}
"""Samples an artifact carries by default: answers of the last two are large."""


def default_samples(task: Task, output: Output, max_tokens: int) -> list[dict[str, Any]]:
    """The samples an artifact carries when none are given; pairs for a cross-encoder."""
    count = COUNTS[Output.TOKENS if task is Task.TOKEN_CLASSIFICATION else output]
    texts = sample_texts(count, max_tokens=max_tokens)
    if task is not Task.RERANK:
        return [{"text": text} for text in texts]
    queries = [text for text in texts if len(text) < 120]
    return [{"query": queries[i % len(queries)], "text": text} for i, text in enumerate(texts)]


def read_samples(path: Path) -> list[dict[str, Any]]:
    """A samples.jsonl as `models samples` writes it; empty lines are passed over. Raises ExportError with the line."""
    found = []
    try:
        # Not splitlines: a text may hold U+2028, which JSON leaves unescaped. An editor may have put a BOM before all.
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ExportError(f"{path} cannot be read as UTF-8 text: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            sample = json.loads(line)
        except ValueError as error:
            raise ExportError(f"{path} line {number} is not JSON: {error}") from error
        if not isinstance(sample, dict) or not isinstance(sample.get("text"), str) or not sample["text"].strip():
            raise ExportError(f'{path} line {number} has no text: each line is an object such as {{"text": "…"}}')
        if any("\ud800" <= character <= "\udfff" for character in sample["text"]):
            raise ExportError(f"{path} line {number} has a lone surrogate: it is no Unicode text, leave it out")
        found.append(sample)
    if not found:
        raise ExportError(f"{path} holds no samples: make a set with `models samples`")
    return found


def inputs(samples: Sequence[Mapping[str, Any]], task: Task) -> list[Text]:
    """What is tokenised of each sample. Raises ExportError where a cross-encoder's sample has no query."""
    for number, sample in enumerate(samples, 1):
        if not str(sample.get("text", "")).strip():
            raise ExportError(f"sample {number} has no text: leave it out, or make a set with `models samples`")
    if task is not Task.RERANK:
        return [str(sample["text"]) for sample in samples]
    for number, sample in enumerate(samples, 1):
        if not sample.get("query"):
            raise ExportError(f'sample {number} has no query: a cross-encoder needs {{"query": "…", "text": "…"}}')
    return [(str(sample["query"]), str(sample["text"])) for sample in samples]


def lower_case(tokenizer: Tokenizer) -> None:
    """Make a tokenizer fold case, as a chain with ``do_lower_case`` does before it tokenises."""
    own, folds = tokenizer.normalizer, normalizers.Lowercase()
    if own is None:
        tokenizer.normalizer = folds
    elif own.normalize_str("ABC") != own.normalize_str("abc"):
        tokenizer.normalizer = normalizers.Sequence([folds, own])


def check_vocabulary(tokenizer: Tokenizer, rows: int | None) -> None:
    """Refuse a tokenizer with ids that the embedding table has no row for: it would read other memory or fail."""
    if rows is None:
        return
    token, largest = max(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    if largest >= rows:
        raise ExportError(
            f"the tokenizer has ids up to {largest} ({token!r}), the embedding table {rows} rows: tokenizer and weights are "
            "not of one model"
        )


def ends_alike(encoded: Sequence[Sequence[int]]) -> bool:
    """Whether all texts end in the same token: what last-token pooling was trained to read."""
    return len({ids[-1] for ids in encoded if ids}) == 1


def check_encoded(encoded: Sequence[Sequence[int]]) -> None:
    """Refuse a tokenizer that makes nothing of a text."""
    empty = [i for i, ids in enumerate(encoded, 1) if not ids]
    if empty:
        raise ExportError(
            f"the tokenizer makes no token of sample {empty[0]}: it is not this model's, or the sample is blank"
        )


def check_same(encoded: Sequence[Sequence[int]], own: Sequence[Sequence[int]] | None) -> None:
    """Refuse a tokenizer.json that gives other ids than the tokenizer the model's library loads with its settings."""
    for number, (ours, theirs) in enumerate(zip(encoded, own or [], strict=False), 1):
        if list(ours) != list(theirs):
            place = next(
                (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
            )
            raise ExportError(
                f"tokenizer.json gives other ids for sample {number} than the tokenizer that tokenizer_config.json describes, from "
                f"token {place + 1} on ({list(ours[place : place + 3])}, not {list(theirs[place : place + 3])}): save it again with "
                "save_pretrained, or name the right file with --tokenizer"
            )


def check_segments(fed: Sequence[tuple[Sequence[int], Sequence[int]]], separator: int) -> None:
    """Refuse a cross-encoder whose segments are not what the graph derives from the first separator.

    The graph has no input for segments: it counts separators. ``fed`` are ids and segments as the source's own library feeds them.
    """
    for number, (ids, types) in enumerate(fed, 1):
        seen, derived = 0, []
        for token in ids:
            derived.append(1 if seen else 0)
            seen += token == separator
        if list(types) != derived:
            raise ExportError(
                f"the tokenizer's segments of sample {number} do not follow from its first separator: this pair format is not supported"
            )
