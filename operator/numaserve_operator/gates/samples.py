"""Reading a sample set: ordered texts and the digest that names them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_SAMPLES = 10_000
MAX_CHARACTERS = 200_000
"""Longest single text: far above any window, low enough that a slip cannot stall a tokeniser."""


class SamplesUnreadable(ValueError):
    """A sample set that cannot be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class SampleSet:
    """Ordered texts and the SHA-256 over them."""

    texts: tuple[str, ...]
    digest: str


def parse_configmap(configmap: Mapping[str, Any]) -> SampleSet:
    """Texts of a ConfigMap, keys in sorted order.

    `*.jsonl` keys hold objects with `text`, every other key one text a line; blank lines are skipped.
    Raises SamplesUnreadable naming the key and line.
    """
    name = configmap.get("metadata", {}).get("name", "?")
    if configmap.get("binaryData"):
        keys = ", ".join(sorted(configmap["binaryData"]))
        raise SamplesUnreadable(f"ConfigMap {name} holds binary data ({keys}): samples must be UTF-8 text")
    data: Mapping[str, str] = configmap.get("data") or {}
    texts = [text for key in sorted(data) for text in _texts(name, key, data[key])]
    if not texts:
        raise SamplesUnreadable(
            f"ConfigMap {name} has no sample text: add a key such as samples.txt with one text a line"
        )
    if len(texts) > MAX_SAMPLES:
        raise SamplesUnreadable(f"ConfigMap {name} has {len(texts)} samples, at most {MAX_SAMPLES} are compared")
    return SampleSet(tuple(texts), digest_of(texts))


def digest_of(texts: Sequence[str]) -> str:
    """Digest of ordered texts: unambiguous, since each is preceded by its length."""
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(f"{len(content)}:".encode() + content)
    return "sha256:" + digest.hexdigest()


def _texts(name: str, key: str, content: str) -> list[str]:
    lines = [(i, line.removesuffix("\r")) for i, line in enumerate(content.split("\n"), 1) if line.strip()]
    texts = [_from_json(name, key, i, line) for i, line in lines] if key.endswith(".jsonl") else [t for _, t in lines]
    for (number, _), text in zip(lines, texts, strict=True):
        if len(text) > MAX_CHARACTERS:
            raise SamplesUnreadable(
                f"ConfigMap {name}, key {key}, line {number}: {len(text)} characters, at most {MAX_CHARACTERS}"
            )
    return texts


def _from_json(name: str, key: str, number: int, line: str) -> str:
    where = f"ConfigMap {name}, key {key}, line {number}"
    try:
        document = json.loads(line)
    except ValueError as error:
        raise SamplesUnreadable(f"{where} is not JSON: {error}") from error
    text = document.get("text") if isinstance(document, dict) else None
    if not isinstance(text, str) or not text:
        raise SamplesUnreadable(f'{where} has no text: write an object such as {{"text": "..."}}')
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise SamplesUnreadable(f"{where} has a lone surrogate: it is no Unicode text")
    return text
