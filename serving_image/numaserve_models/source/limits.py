"""How long a text may be: min(trained length, tokenizer, positions), never guessed upwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from numaserve_models.errors import ExportError
from numaserve_models.source.settings import read_json

BUCKETS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
SILENT = 8192
"""Window of a model with more positions whose files name no trained length."""
_UNBOUNDED = 1_000_000
"""Tokenizers write absurdly large numbers where they know of no limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Lengths in tokens. ``trained`` is what the model's files say it was trained on, None where they are silent."""

    max_tokens: int
    trained: int | None
    positions: int

    @property
    def untrained(self) -> bool:
        """Whether the window reaches beyond what was trained."""
        return self.trained is not None and self.max_tokens > self.trained


def limits(asked: int | None, chain: int | None, tokenizer: int | None, positions: int) -> Limits:
    """The window to export. Raises ExportError where more is asked for than there are positions."""
    stated = [n for n in (chain, tokenizer) if n is not None and n < _UNBOUNDED]
    trained = min([*stated, positions]) if stated else None
    if asked is not None and asked > positions:
        raise ExportError(f"--max-tokens {asked} is beyond the model's {positions} positions: ask for at most that")
    default = min([*stated, positions]) if stated else min(positions, SILENT)
    return Limits(asked or default, trained, positions)


def tokenizer_limit(folder: Path) -> int | None:
    """``model_max_length`` of tokenizer_config.json, in tokens; None where it is not stated."""
    path = folder / "tokenizer_config.json"
    value = read_json(path).get("model_max_length") if path.is_file() else None
    return int(value) if isinstance(value, (int, float)) and value < _UNBOUNDED else None


def truncation_side(folder: Path) -> Literal["left", "right"]:
    """The side that the model's tokenizer cuts."""
    path = folder / "tokenizer_config.json"
    return "left" if path.is_file() and read_json(path).get("truncation_side") == "left" else "right"


def buckets(max_tokens: int) -> list[int]:
    """Powers of two below the window, and the window itself."""
    return [*(b for b in BUCKETS if b < max_tokens), max_tokens]
