"""From a model directory to a module: ids and mask in, the answer out."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoModelForTokenClassification
from transformers.utils import logging as transformers_logging

from numaserve_api.config import Output, Pooling, Task
from numaserve_models.errors import ExportError
from numaserve_models.network import checkpoint, labels, registry, weights
from numaserve_models.network.adapters import merge_adapter
from numaserve_models.network.attention import IMPLEMENTATION, block_local
from numaserve_models.network.heads import EmbeddingHead
from numaserve_models.network.longformer import TraceableLongformer
from numaserve_models.network.modules import Embedding, Hidden, Logits, LongformerLogits, Splade, pad_id
from numaserve_models.source.chain import Chain, read_chain

_LABEL_TASKS: dict[Task, Any] = {
    Task.CLASSIFICATION: AutoModelForSequenceClassification,
    Task.RERANK: AutoModelForSequenceClassification,
    Task.TOKEN_CLASSIFICATION: AutoModelForTokenClassification,
}
_OWN_ATTENTION = ("mpnet", "deberta-v2", "longformer")


@dataclass(frozen=True, slots=True)
class NetworkRequest:
    """Which model, and what its answer shall be where the directory does not say."""

    source: Path
    task: Task | None = None
    output: Output | None = None
    pooling: Pooling | None = None
    normalize: bool | None = None
    adapter: Path | None = None
    trust_remote_code: bool = False
    tokenizer: Path | None = None


@dataclass
class Network:
    """A loaded model. ``module(input_ids, attention_mask)`` answers; ids and mask are int64 [batch, length]."""

    module: nn.Module
    model: Any
    config: Any
    task: Task
    output: Output
    pooling: Pooling
    normalize: bool
    chain: Chain
    architecture: registry.Architecture
    leading: int = 0
    labels: tuple[str, ...] = ()
    activation: str | None = None
    separator: int | None = None
    shipped: nn.Module | None = field(default=None)

    @contextmanager
    def exporting(self, by_blocks: bool) -> Iterator[nn.Module]:
        """The module with the attention that is exported, sliding layers block by block where asked."""
        before = self.config._attn_implementation
        if not self.architecture.foreign and self.architecture.name not in _OWN_ATTENTION:
            self._attention(IMPLEMENTATION)
        try:
            with block_local(by_blocks), torch.no_grad():
                yield self.module
        finally:
            self._attention(before)

    def reference(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The answer of the shipped layers with transformers' own attention."""
        with torch.no_grad():
            answer: torch.Tensor = (self.shipped or self.module)(ids, mask)
            return answer

    @property
    def sliding(self) -> bool:
        """Whether any layer has a window, so that a block-local graph exists."""
        return any("sliding" in layer for layer in registry.declared_layers(self.config, self.leading) or [])

    def _attention(self, name: str) -> None:
        for module in self.model.modules():
            config = getattr(module, "config", None)
            if config is not None and hasattr(config, "_attn_implementation"):
                config._attn_implementation = name


def load(request: NetworkRequest) -> Network:
    """Load a model directory. Raises ExportError with one sentence for whatever does not fit."""
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    with warnings.catch_warnings():  # of libraries about each other: nothing the user can act on
        warnings.simplefilter("ignore")
        return _load(request)


def _load(request: NetworkRequest) -> Network:
    if not request.source.is_dir():
        raise ExportError(f"{request.source} is no model directory")
    chain = read_chain(request.source) or Chain(transformer=request.source)
    folder = chain.transformer
    config = checkpoint.read_config(folder, request.trust_remote_code)
    entry = registry.architecture(config, request.trust_remote_code)
    weights.weight_files(folder)
    task = request.task or labels.task_of(config, chain, _is_chain(request))
    if task in _LABEL_TASKS:
        network = _labelling(request, config, entry, chain, task)
    else:
        network = _embedding(request, config, entry, chain)
    weights.check_finite(network.module)
    network.module.eval()
    return network


def _labelling(request: NetworkRequest, config: Any, entry: registry.Architecture, chain: Chain, task: Task) -> Network:
    if entry.name == "lfm2":
        raise ExportError("lfm2 with a classification head is not supported: its encoders are (embedding, tokens)")
    model = checkpoint.pretrained(_LABEL_TASKS[task], chain.transformer, config, request.trust_remote_code)
    if request.adapter:
        merge_adapter(model, request.adapter)
    leading = 1 if entry.name == "longformer" and task is not Task.TOKEN_CLASSIFICATION else 0
    separator = labels.separator(request.tokenizer, chain.transformer, config) if task is Task.RERANK else None
    shipped = Logits(model, separator)
    module: nn.Module = shipped
    if entry.name == "longformer":
        module = LongformerLogits(model, TraceableLongformer(model.longformer, leading))
    names = tuple(str(config.id2label[i]) for i in range(int(config.num_labels)))
    output = Output.TOKENS if task is Task.TOKEN_CLASSIFICATION else Output.POOLED
    return Network(
        module=module, model=model, config=model.config, task=task, output=output, pooling=Pooling.AUTO, normalize=False,
        chain=chain, architecture=entry, leading=leading, labels=names, activation=labels.activation(config, chain, task), separator=separator,
        shipped=shipped,
    )  # fmt: skip


def _embedding(request: NetworkRequest, config: Any, entry: registry.Architecture, chain: Chain) -> Network:
    pooling = request.pooling or chain.pooling
    output = request.output or chain.output or (Output.POOLED if pooling else None)
    if output is Output.SPARSE:
        return _sparse(request, config, entry, chain)
    if output is not Output.TOKENS and pooling in (None, Pooling.AUTO):
        raise ExportError(
            f"{request.source.name} does not say how its authors pool tokens: name --pooling cls, mean or last, "
            "or --output tokens for one vector a token"
        )
    if output is Output.TOKENS and chain.dense:
        raise ExportError(
            "--output tokens: the Dense module of this model works on pooled vectors, a token has no use for it"
        )
    output = output or Output.POOLED
    normalize = request.normalize if request.normalize is not None else (chain.normalize or not _is_chain(request))
    model = checkpoint.encoder(chain.transformer, config, request.trust_remote_code)
    if request.adapter:
        merge_adapter(model, request.adapter)
    head = EmbeddingHead(chain.token_dense, None if output is Output.TOKENS else pooling, chain.dense, normalize)
    traceable = TraceableLongformer(model) if entry.name == "longformer" else Hidden(model)
    return Network(
        module=Embedding(traceable, head, pad_id(config)), model=model, config=model.config, task=Task.EMBEDDING,
        output=output, pooling=(pooling or Pooling.AUTO) if output is Output.POOLED else Pooling.AUTO, normalize=normalize,
        chain=chain, architecture=entry, shipped=Embedding(Hidden(model), head, pad_id(config)),
    )  # fmt: skip


def _is_chain(request: NetworkRequest) -> bool:
    return (request.source / "modules.json").is_file()


def _sparse(request: NetworkRequest, config: Any, entry: registry.Architecture, chain: Chain) -> Network:
    if entry.name in ("longformer", "lfm2"):
        raise ExportError(f"sparse output of {entry.name} is not supported: its masked-LM head has no traced form")
    model = checkpoint.pretrained(AutoModelForMaskedLM, chain.transformer, config, request.trust_remote_code)
    if request.adapter:
        merge_adapter(model, request.adapter)
    return Network(
        module=Splade(model, pad_id(config)), model=model, config=model.config, task=Task.EMBEDDING, output=Output.SPARSE,
        pooling=Pooling.AUTO, normalize=False, chain=chain, architecture=entry,
    )  # fmt: skip
