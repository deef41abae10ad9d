"""Attention as it is exported: traceable at any length, sliding windows dense or block-local.

Registered with transformers as an attention implementation of its own, so that every architecture that
uses their interface runs its own layers and only the innermost step is ours. Masks are additive and stay
[batch, 1, 1, length]: causality and windows are added here, where their width is known.

Block-local: queries in blocks of ``left + right`` tokens, each against two such blocks of keys, which is
all a window of that width can reach. Cost and memory grow with length × window instead of length².
(Longformer, arXiv:2004.05150, section 3.1, does the same with overlapping chunks.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface

IMPLEMENTATION = "numaserve"
NEGATIVE = -1e9
"""Added to the score of what must not be seen: exp() of it is 0 in float32 and bfloat16, yet never NaN."""
_state = {"block_local": False}


@dataclass(frozen=True, slots=True)
class Reach:
    """How many tokens a token sees to its left and right; None is all of them.

    The ``leading`` first tokens are seen by everybody (global tokens of Longformer).
    """

    left: int | None
    right: int | None
    leading: int = 0

    @property
    def sliding(self) -> bool:
        """Whether there is a window at all, so that blocks can serve it."""
        return self.left is not None and self.right is not None

    @property
    def block(self) -> int:
        """Tokens of one block."""
        return (self.left or 0) + (self.right or 0)


@contextmanager
def block_local(on: bool) -> Iterator[None]:
    """Within it sliding layers are computed block by block."""
    before = _state["block_local"]
    _state["block_local"] = on
    try:
        yield
    finally:
        _state["block_local"] = before


def padding_mask(mask: torch.Tensor) -> torch.Tensor:
    """Additive float32 [batch, 1, 1, length] of a 0/1 mask [batch, length]."""
    return ((1.0 - mask.to(torch.float32)) * NEGATIVE)[:, None, None, :]


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float, reach: Reach
) -> torch.Tensor:
    """Attention of [batch, heads, length, width] tensors; ``mask`` is additive [batch, 1, 1, length]."""
    if reach.sliding and _state["block_local"] and reach.block > 0:
        return _by_blocks(query, key, value, mask, scale, reach)
    if reach.left is None and reach.right is None:
        return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)
    positions = torch.arange(query.shape[2], device=query.device)
    seen = _band(positions[:, None] - positions[None, :], reach)
    if reach.leading:
        seen = torch.where(positions[None, :] < reach.leading, 0.0, seen)
    seen = mask + seen
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scale)


def _band(distance: torch.Tensor, reach: Reach) -> torch.Tensor:
    """Additive mask of distances query − key."""
    allowed = torch.ones_like(distance, dtype=torch.bool)
    if reach.left is not None:
        allowed = allowed & (distance <= reach.left)
    if reach.right is not None:
        allowed = allowed & (distance >= -reach.right)
    return torch.where(allowed, 0.0, NEGATIVE)


def _by_blocks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float, reach: Reach
) -> torch.Tensor:
    batch, heads, length, width = query.shape
    block, left, right = reach.block, reach.left or 0, reach.right or 0
    blocks = (length + block - 1) // block
    extra = blocks * block - length
    queries = functional.pad(query, (0, 0, 0, extra)).reshape(batch, heads, blocks, block, width)

    def windows(x: torch.Tensor) -> torch.Tensor:
        padded = functional.pad(x, (0, 0, left, right + extra))
        first = padded[:, :, : blocks * block].reshape(batch, heads, blocks, block, width)
        second = padded[:, :, block:].reshape(batch, heads, blocks, block, width)
        return torch.cat([first, second], dim=3)

    hidden = mask
    if reach.leading:  # they get columns of their own below
        hidden = torch.where(torch.arange(length) < reach.leading, NEGATIVE, mask)
    padded_mask = functional.pad(hidden, (left, right + extra), value=NEGATIVE)
    first = padded_mask[..., : blocks * block].reshape(-1, 1, blocks, 1, block)
    second = padded_mask[..., block:].reshape(-1, 1, blocks, 1, block)
    distance = torch.arange(block)[:, None] - (torch.arange(2 * block) - left)[None, :]
    seen = torch.cat([first, second], dim=4) + _band(distance, reach)
    scores = torch.matmul(queries * scale, windows(key).transpose(3, 4)) + seen
    values = windows(value)
    if reach.leading:
        common = _leading(key, blocks, reach.leading)
        extra_scores = torch.matmul(queries * scale, common.transpose(3, 4))
        scores = torch.cat([extra_scores + mask[..., : reach.leading][:, :, None], scores], dim=4)
        values = torch.cat([_leading(value, blocks, reach.leading), values], dim=3)
    out = torch.matmul(torch.softmax(scores, dim=-1), values)
    return out.reshape(batch, heads, blocks * block, width)[:, :, :length]


def _leading(x: torch.Tensor, blocks: int, count: int) -> torch.Tensor:
    """The first ``count`` keys or values [b, h, n, d] for every block, [b, h, blocks, count, d]."""
    batch, heads, _, width = x.shape
    return x[:, :, None, :count].expand(batch, heads, blocks, count, width)


def repeat_heads(x: torch.Tensor, times: int) -> torch.Tensor:
    """Grouped-query keys or values [b, g, n, d] as [b, g·times, n, d]."""
    if times == 1:
        return x
    batch, groups, length, width = x.shape
    return x[:, :, None].expand(batch, groups, times, length, width).reshape(batch, groups * times, length, width)


def _forward(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **other: Any,
) -> tuple[torch.Tensor, None]:
    """The signature transformers calls; ``sliding_window`` is one more than the farthest token seen."""
    if other.get("softcap") is not None:
        raise NotImplementedError("attention with soft-capped scores")
    times = int(getattr(module, "num_key_value_groups", 1))
    mask = torch.zeros(1, 1, 1, 1) if attention_mask is None else attention_mask
    scale = float(scaling if scaling is not None else query.shape[-1] ** -0.5)
    reach = reach_of(bool(getattr(module, "is_causal", False)), sliding_window)
    out = attend(query, repeat_heads(key, times), repeat_heads(value, times), mask, scale, reach)
    return out.transpose(1, 2).contiguous(), None


def reach_of(causal: bool, sliding_window: int | None) -> Reach:
    """What transformers' ``is_causal`` and ``sliding_window`` mean."""
    left = None if sliding_window is None else sliding_window - 1
    return Reach(left, 0 if causal else left)


def _mask(**other: Any) -> torch.Tensor | None:
    mask = other.get("attention_mask")
    return None if mask is None else padding_mask(mask)


AttentionInterface.register(IMPLEMENTATION, _forward)
AttentionMaskInterface.register(IMPLEMENTATION, _mask)
