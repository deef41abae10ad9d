"""LFM2 as a bidirectional encoder: attention without a causal mask, convolutions centred and masked.

The published encoders (LFM2.5-Embedding, -ColBERT, Lfm2BidirectionalForMaskedLM) bring code of their own
that patches transformers' causal classes. The same patches are made here, so that none of it is run:
see the LFM2.5 retrievers' description and model cards. One difference is on purpose: padding is zeroed
before every convolution also for a single text, where the shipped code lets it leak into its neighbours.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers.models.lfm2 import modeling_lfm2


class CentredConvolution(nn.Module):
    """A short convolution that mixes each token with its neighbours on both sides, never with padding."""

    def __init__(self, shipped: modeling_lfm2.Lfm2ShortConv) -> None:
        super().__init__()
        self.conv, self.in_proj, self.out_proj = shipped.conv, shipped.in_proj, shipped.out_proj
        self.conv.padding = (shipped.L_cache // 2,)

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any
    ) -> torch.Tensor:
        """Hidden states [batch, length, width] to the same shape; ``attention_mask`` is 0/1 [batch, length]."""
        length = hidden_states.shape[1]
        if attention_mask is not None:
            hidden_states = hidden_states * attention_mask[:, :, None].to(hidden_states.dtype)
        gate, out_gate, x = self.in_proj(hidden_states).transpose(-1, -2).chunk(3, dim=-2)
        mixed = self.conv(gate * x)[..., :length]
        mixed_out: torch.Tensor = self.out_proj((out_gate * mixed).transpose(-1, -2))
        return mixed_out


class BidirectionalLfm2(modeling_lfm2.Lfm2Model):
    """Lfm2Model whose layers see both sides. Padding is masked by hand: transformers' builder is causal."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for layer in self.layers:
            if layer.is_attention_layer:
                layer.self_attn.is_causal = False
            else:
                layer.conv = CentredConvolution(layer.conv)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **_: Any) -> Any:
        """Token ids and 0/1 mask [batch, length] to an output with ``last_hidden_state`` [batch, length, width]."""
        hidden = self.embed_tokens(input_ids)
        positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
        rotary = self.rotary_emb(hidden, position_ids=positions)
        full = ((1.0 - attention_mask.to(torch.float32)) * -1e9)[:, None, None, :]
        for layer in self.layers:
            mask = full if layer.is_attention_layer else attention_mask
            hidden = layer(hidden, attention_mask=mask, position_embeddings=rotary, position_ids=positions)
        return modeling_lfm2.BaseModelOutputWithPast(last_hidden_state=self.embedding_norm(hidden))
