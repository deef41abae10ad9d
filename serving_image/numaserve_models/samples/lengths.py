"""How long texts are: in tokens of a tokenizer, or in characters where there is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numaserve_models.errors import ExportError

TOKEN_BUCKETS = (32, 64, 128, 256, 512)
CHARACTERS_PER_TOKEN = 4
"""Of English in usual vocabularies; only the buckets' edges depend on it."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Lengths of texts, the buckets' upper edges in the same unit, ascending, and the unit's name."""

    lengths: Callable[[Sequence[str]], list[int]]
    edges: tuple[int, ...]
    unit: str


def characters(edges: Sequence[int] | None = None) -> Measure:
    """Lengths in characters."""
    default = [CHARACTERS_PER_TOKEN * edge for edge in TOKEN_BUCKETS]
    return Measure(lambda texts: [len(text) for text in texts], checked_edges(edges or default), "characters")


def tokens(path: Path, edges: Sequence[int] | None = None) -> Measure:
    """Lengths in tokens of a tokenizer.json, special tokens included. Raises ExportError."""
    from tokenizers import Tokenizer

    def work(what: Callable[[], Any]) -> Any:
        try:
            return what()
        except BaseException as error:  # the Rust side panics with a BaseException
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise ExportError(f"{path} is not a usable tokenizer.json: {error}") from error

    tokenizer = work(lambda: Tokenizer.from_file(str(path)))
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def lengths(texts: Sequence[str]) -> list[int]:
        return [len(encoding.ids) for encoding in work(lambda: tokenizer.encode_batch(list(texts)))]

    return Measure(lengths, checked_edges(edges or TOKEN_BUCKETS), "tokens")


def checked_edges(edges: Sequence[int]) -> tuple[int, ...]:
    """Ascending, distinct, positive. Raises ExportError."""
    if not edges or min(edges) < 1 or list(edges) != sorted(set(edges)):
        given = ", ".join(map(str, edges))
        raise ExportError(f"buckets {given or 'none'}: give ascending positive lengths such as 64,128,256")
    return tuple(edges)
