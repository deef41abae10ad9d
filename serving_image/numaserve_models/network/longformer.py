"""Longformer in operations that trace at any length.

The shipped class pads to its window with Python integers, which a trace freezes: the graph is silently
wrong at every other length. Here the same layers run with our attention (arXiv:2004.05150): local tokens
see ``attention_window / 2`` tokens on each side and the global ones; global tokens see everything through
projections of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from numaserve_models.network.attention import Reach, attend, padding_mask


class TraceableLongformer(nn.Module):
    """A LongformerModel's weights, forward rewritten. ``leading`` first tokens are global (0 or 1)."""

    def __init__(self, shipped: Any, leading: int = 0) -> None:
        super().__init__()
        self.embeddings, self.layers = shipped.embeddings, shipped.encoder.layer
        self.config = shipped.config
        self.leading = leading

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Hidden states [batch, length, width] of token ids and a 0/1 mask [batch, length]."""
        hidden: torch.Tensor = self.embeddings(input_ids=input_ids)
        mask = padding_mask(attention_mask)
        for layer in self.layers:
            attended = self._attention(layer.attention.self, hidden, mask)
            mixed = layer.attention.output(attended, hidden)
            hidden = layer.output(layer.intermediate(mixed), mixed)
        return hidden

    def _attention(self, weights: Any, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        window = int(weights.one_sided_attn_window_size)
        scale = float(weights.head_dim) ** -0.5
        query, key, value = (_heads(p(hidden), weights) for p in (weights.query, weights.key, weights.value))
        out = attend(query, key, value, mask, scale, Reach(window, window, self.leading))
        if self.leading:
            first = hidden[:, : self.leading]
            overview = functional.scaled_dot_product_attention(
                _heads(weights.query_global(first), weights),
                _heads(weights.key_global(hidden), weights),
                _heads(weights.value_global(hidden), weights),
                attn_mask=mask,
                scale=scale,
            )
            out = torch.cat([overview, out[:, :, self.leading :]], dim=2)
        return out.transpose(1, 2).reshape(hidden.shape)


def _heads(x: torch.Tensor, weights: Any) -> torch.Tensor:
    batch, length, _ = x.shape
    return x.reshape(batch, length, weights.num_heads, weights.head_dim).transpose(1, 2)
