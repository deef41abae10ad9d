"""What the engine tells while it works. The base does nothing; metrics implement it."""

from __future__ import annotations

from collections.abc import Sequence


class Observer:
    """Receives facts of the hot path; every method must be cheap."""

    def tokenised(self, seconds: float) -> None:
        """A request's texts were tokenised."""

    def embedded(self, texts: int, tokens: int, truncated: int) -> None:
        """A request was answered."""

    def inferred(self, seconds: float, tokens: Sequence[int], width: int, queued: Sequence[float]) -> None:
        """A batch was inferred: token counts, padded length, seconds each text had waited."""
