"""What is traced: ids and mask in, the answer out. Padding gets the model's own padding id, whatever came in."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from numaserve_models.network.heads import splade
from numaserve_models.network.longformer import TraceableLongformer


def pad_id(config: Any) -> int:
    """The id that stands for padding; 0 where the config names none."""
    return int(config.pad_token_id) if getattr(config, "pad_token_id", None) is not None else 0


class Hidden(nn.Module):
    """A transformers encoder as ids and mask to hidden states."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        return hidden


class Embedding(nn.Module):
    """Encoder and head. Padding gets the model's own padding id, whatever the caller filled in."""

    def __init__(self, encoder: nn.Module, head: nn.Module, pad_id: int) -> None:
        super().__init__()
        self.encoder, self.head, self.pad_id = encoder, head, pad_id

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Answers of token ids and a 0/1 mask, both int64 [batch, length]."""
        ids = torch.where(attention_mask > 0, input_ids, self.pad_id)
        answer: torch.Tensor = self.head(self.encoder(ids, attention_mask), attention_mask)
        return answer


class Splade(nn.Module):
    """Masked-LM model and SPLADE's head."""

    def __init__(self, model: Any, pad_id: int) -> None:
        super().__init__()
        self.model, self.pad_id = model, pad_id

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Term weights [batch, vocabulary]."""
        ids = torch.where(attention_mask > 0, input_ids, self.pad_id)
        return splade(self.model(input_ids=ids, attention_mask=attention_mask).logits, attention_mask)


class Logits(nn.Module):
    """A classifier's own class: logits of one segment, or of a pair parted by ``separator``."""

    def __init__(self, model: Any, separator: int | None = None) -> None:
        super().__init__()
        self.model, self.pad_id, self.separator = model, pad_id(model.config), separator

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Logits [batch, labels] or [batch, length, labels]."""
        ids = torch.where(attention_mask > 0, input_ids, self.pad_id)
        segments = {} if self.separator is None else {"token_type_ids": self._segments(ids, attention_mask)}
        logits: torch.Tensor = self.model(input_ids=ids, attention_mask=attention_mask, **segments).logits
        return logits

    def _segments(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """0 up to and with the first separator, 1 after it: one input less to feed."""
        ends = (ids == self.separator).to(torch.int64)
        return ((ends.cumsum(1) - ends) > 0).to(torch.int64) * mask


class LongformerLogits(nn.Module):
    """Longformer's classifiers over the traceable encoder."""

    def __init__(self, model: Any, encoder: TraceableLongformer) -> None:
        super().__init__()
        self.encoder, self.classifier, self.pad_id = encoder, model.classifier, pad_id(model.config)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Logits [batch, labels] or [batch, length, labels]."""
        ids = torch.where(attention_mask > 0, input_ids, self.pad_id)
        logits: torch.Tensor = self.classifier(self.encoder(ids, attention_mask))
        return logits
