"""What makes an answer of hidden states: pooling, Dense, normalisation, projections, SPLADE, classifiers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from numaserve_api.config import Pooling
from numaserve_models.errors import ExportError
from numaserve_models.network.weights import read_tensors
from numaserve_models.source.chain import DenseStep

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "Identity": nn.Identity, "Tanh": nn.Tanh, "ReLU": nn.ReLU, "GELU": nn.GELU, "SiLU": nn.SiLU, "Sigmoid": nn.Sigmoid,
}  # fmt: skip


def pool(hidden: torch.Tensor, mask: torch.Tensor, how: Pooling) -> torch.Tensor:
    """Hidden states [b, n, d] and 0/1 mask [b, n] to [b, d]; padding on either side never takes part."""
    weights = mask.to(hidden.dtype)[:, :, None]
    if how is Pooling.MEAN:
        return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
    positions = torch.arange(hidden.shape[1], device=hidden.device)[None]
    if how is Pooling.CLS:
        index = torch.where(mask > 0, positions, hidden.shape[1]).amin(dim=1)
    elif how is Pooling.LAST:
        index = torch.where(mask > 0, positions, -1).amax(dim=1)
    else:
        raise ExportError("pooling must be cls, mean or last: this source does not say which its authors used")
    return hidden.gather(1, index[:, None, None].expand(-1, 1, hidden.shape[2]))[:, 0]


def dense(step: DenseStep) -> nn.Sequential:
    """A Dense module with its weights. Raises ExportError."""
    tensors = {name.removeprefix("linear."): t.to(torch.float32) for name, t in read_tensors(step.folder).items()}
    layer = nn.Linear(step.inputs, step.outputs, bias=step.bias)
    try:
        layer.load_state_dict(tensors)
    except RuntimeError as error:
        raise ExportError(
            f"the weights of the Dense module in {step.folder.name} do not fit its config: {error}"
        ) from error
    return nn.Sequential(layer, _ACTIVATIONS[step.activation]())


class EmbeddingHead(nn.Module):
    """Dense modules on tokens, pooling (or none), Dense modules on what was pooled, normalisation."""

    def __init__(
        self, on_tokens: tuple[DenseStep, ...], pooling: Pooling | None, steps: tuple[DenseStep, ...], normalize: bool
    ) -> None:
        super().__init__()
        self.pooling, self.normalize = pooling, normalize
        self.on_tokens = nn.Sequential(*(dense(step) for step in on_tokens))
        self.dense = nn.Sequential(*(dense(step) for step in steps))

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """[b, n, d] to [b, d], or token by token to [b, n, d] where there is no pooling."""
        hidden = self.on_tokens(hidden)
        out: torch.Tensor = self.dense(hidden if self.pooling is None else pool(hidden, mask, self.pooling))
        return functional.normalize(out, dim=-1) if self.normalize else out


def splade(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Masked-LM logits [b, n, v] to non-negative term weights [b, v]: max over tokens of log(1 + relu) (arXiv:2109.10086)."""
    weights = torch.log1p(torch.relu(logits)) * mask.to(logits.dtype)[:, :, None]
    return weights.amax(dim=1)
