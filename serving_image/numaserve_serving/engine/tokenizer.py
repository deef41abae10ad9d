"""Tokenising on all kinds of texts, with truncation that is counted and errors that are the caller's."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer as RustTokenizer

from numaserve_api.conditions import Reason
from numaserve_api.config import Overflow, Window
from numaserve_serving.engine.errors import InputError, StartupError

MAX_CHARACTERS = 1_000_000
"""A tokeniser's work grows with characters: cut far above any window before it starts."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of one text, special tokens included, and how many were cut."""

    ids: tuple[int, ...]
    truncated: int

    @property
    def digest(self) -> str:
        """Short digest of the ids: tells a changed tokenizer apart from a changed model."""
        return hashlib.sha256(np.asarray(self.ids, dtype="<i8").tobytes()).hexdigest()[:16]


class Tokenizer:
    """The artifact's tokenizer.json. Settings are made once; a lock keeps the Rust side from being borrowed twice."""

    def __init__(self, path: Path, window: Window) -> None:
        self._window = window
        try:
            self._rust = RustTokenizer.from_file(str(path))
            self._rust.no_truncation()
            self._rust.no_padding()
            self._rust.encode("warm")
        except BaseException as error:
            # Panics of the Rust side derive from BaseException (tokenizers#1349).
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise StartupError(Reason.ARTIFACT_INVALID, f"{path.name} is not a usable tokenizer: {error}") from error
        self._specials = self._rust.num_special_tokens_to_add(False)
        self._lock = threading.Lock()

    @property
    def vocabulary(self) -> int:
        """Number of token ids, added tokens included."""
        return int(self._rust.get_vocab_size())

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Token ids of texts. Raises InputError naming the text."""
        for index, text in enumerate(texts):
            _check(text, index)
        return [self._encode(text, index) for index, text in enumerate(texts)]

    def _encode(self, text: str, index: int) -> Encoded:
        limit = self._window.max_tokens
        try:
            with self._lock:
                encoding = self._rust.encode(text[:MAX_CHARACTERS])
                count = len(encoding.ids)
                if count > limit and self._window.overflow is not Overflow.REJECT:
                    # Cuts text tokens only: special tokens are kept whichever side is cut.
                    bare = self._rust.encode(text[:MAX_CHARACTERS], add_special_tokens=False)
                    bare.truncate(limit - self._specials, direction=self._window.truncate_side)
                    encoding = self._rust.post_process(bare)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise InputError(f"input {index} cannot be tokenised: {error}", index) from error
        if count > limit and self._window.overflow is Overflow.REJECT:
            raise InputError(
                f"input {index} has {count} tokens, the window is {limit} and overflow is `reject`: shorten it", index
            )
        if not encoding.ids:
            raise InputError(f"input {index} has no tokens: send at least one word", index)
        return Encoded(tuple(encoding.ids), max(count - len(encoding.ids), 0))


def _check(text: str, index: int) -> None:
    if not text:
        raise InputError(f"input {index} is an empty string: send at least one character", index)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"input {index} has a lone surrogate at character {error.start}: it is no Unicode text", index
        ) from error
