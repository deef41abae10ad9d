"""The scheduling policy: which waiting texts make the next batch. Pure, so it can be simulated.

Texts of similar length go together (padding is wasted work), the oldest is always in the batch (so
nobody starves), and a batch is bounded in tokens. The full scheduler with lanes builds on this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ROUND_TO = 16
"""Lengths are padded to multiples of this: the runtime keeps kernels for each shape it ever saw."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Tokens a batch may hold, padding included, and texts it may hold."""

    batch_tokens: int = 512
    batch_texts: int = 64
    max_padding: float = 0.15


def padded_length(tokens: int, ceiling: int) -> int:
    """Length a text is padded to, in tokens."""
    return min(-(-tokens // ROUND_TO) * ROUND_TO, max(ceiling, tokens))


def next_batch(waiting: Sequence[int], limits: Limits) -> list[int]:
    """Indices of the texts to infer together.

    ``waiting`` holds token counts, oldest first. The oldest leads; others join, nearest in length
    first, while the batch stays within its token budget and padding.
    """
    if not waiting:
        return []
    lead = waiting[0]
    order = sorted(range(1, len(waiting)), key=lambda i: (abs(waiting[i] - lead), i))
    chosen, longest, total = [0], lead, lead
    for index in order:
        if len(chosen) >= limits.batch_texts:
            break
        width = max(longest, waiting[index])
        area = width * (len(chosen) + 1)
        if area > limits.batch_tokens or (area - total - waiting[index]) / area > limits.max_padding:
            continue
        chosen.append(index)
        longest, total = width, total + waiting[index]
    return sorted(chosen)
