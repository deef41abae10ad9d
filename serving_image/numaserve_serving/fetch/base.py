"""The one thing the sources have in common: bytes of a named file from an offset on."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol


class Source(Protocol):
    """Where an artifact lies."""

    @property
    def title(self) -> str:
        """The source in messages: never with credentials in it."""
        ...

    @property
    def remedy(self) -> str:
        """What to do where it cannot be reached at all."""
        ...

    def stream(self, path: str, offset: int) -> Generator[bytes]:
        """The bytes of a file of the artifact from ``offset`` on. Raises Dropped and FetchError."""
        ...

    def close(self) -> None:
        """Give back connections."""
        ...
