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
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.utils import logging as transformers_logging

from numaserve_api.config import Output, Pooling, Task
from numaserve_models.errors import ExportError, said
from numaserve_models.network import registry, weights
from numaserve_models.network.adapters import merge_adapter
from numaserve_models.network.attention import IMPLEMENTATION, block_local
from numaserve_models.network.heads import EmbeddingHead
from numaserve_models.network.lfm2 import BidirectionalLfm2
from numaserve_models.network.longformer import TraceableLongformer
from numaserve_models.network.modules import Embedding, Hidden, Logits, LongformerLogits, Splade, pad_id
from numaserve_models.running import load_tokenizer
from numaserve_models.source.chain import Chain, read_chain

_HARMLESS = ("pooler.", "position_ids", "lm_head.", "cls.", "embeddings.token_type_ids")
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
    config = _config(folder, request.trust_remote_code)
    entry = registry.architecture(config, request.trust_remote_code)
    weights.weight_files(folder)
    task = request.task or _task(config, request.source)
    if task in _LABEL_TASKS:
        network = _labelling(request, config, entry, chain, task)
    else:
        network = _embedding(request, config, entry, chain)
    weights.check_finite(network.module)
    network.module.eval()
    return network


def _config(folder: Path, trust: bool) -> Any:
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust)
        if hasattr(config, "use_cache"):
            config.use_cache = False  # an encoder keeps no keys between calls, and a cache does not trace
        return config
    except (OSError, ValueError, KeyError) as error:
        if not trust and "trust_remote_code" in str(error):
            raise ExportError(
                f"{folder.name} brings code of its own ({', '.join(sorted(p.name for p in folder.glob('*.py')))}): read it, and "
                "pass --trust-remote-code to run it with your rights"
            ) from error
        first = said(error)
        raise ExportError(f"{folder.name}/config.json cannot be used: {first}") from error


def _task(config: Any, source: Path) -> Task:
    """What the config's class answers. A sentence-transformers chain is an embedding model."""
    if (source / "modules.json").is_file():
        return Task.EMBEDDING
    names = " ".join(getattr(config, "architectures", None) or [])
    if "ForTokenClassification" in names:
        return Task.TOKEN_CLASSIFICATION
    if "ForSequenceClassification" in names:
        cross_encoder = getattr(config, "sentence_transformers", None) is not None or int(config.num_labels) == 1
        return Task.RERANK if cross_encoder else Task.CLASSIFICATION
    return Task.EMBEDDING


def _labelling(request: NetworkRequest, config: Any, entry: registry.Architecture, chain: Chain, task: Task) -> Network:
    if entry.name == "lfm2":
        raise ExportError("lfm2 with a classification head is not supported: its encoders are (embedding, tokens)")
    model = _strict(_LABEL_TASKS[task], chain.transformer, request, config)
    if request.adapter:
        merge_adapter(model, request.adapter)
    leading = 1 if entry.name == "longformer" and task is not Task.TOKEN_CLASSIFICATION else 0
    separator = _separator(request, config, chain) if task is Task.RERANK else None
    shipped = Logits(model, separator)
    module: nn.Module = shipped
    if entry.name == "longformer":
        module = LongformerLogits(model, TraceableLongformer(model.longformer, leading))
    labels = tuple(str(config.id2label[i]) for i in range(int(config.num_labels)))
    output = Output.TOKENS if task is Task.TOKEN_CLASSIFICATION else Output.POOLED
    return Network(
        module=module, model=model, config=model.config, task=task, output=output, pooling=Pooling.AUTO, normalize=False,
        chain=chain, architecture=entry, leading=leading, labels=labels, activation=_activation(config), separator=separator,
        shipped=shipped,
    )  # fmt: skip


def _separator(request: NetworkRequest, config: Any, chain: Chain) -> int | None:
    """The token that ends the first segment, where the model tells segments apart and its tokenizer marks them."""
    path = request.tokenizer or chain.transformer / "tokenizer.json"
    if int(getattr(config, "type_vocab_size", 0) or 0) < 2 or not path.is_file():
        return None
    pair = load_tokenizer(path).encode("a", "b")
    if not any(pair.type_ids):
        return None
    return int(pair.ids[pair.type_ids.index(1) - 1])


def _activation(config: Any) -> str:
    """What turns logits into scores: stated by a cross-encoder's config, else by its kind of problem."""
    stated = str((getattr(config, "sentence_transformers", None) or {}).get("activation_fn", "")).rpartition(".")[2]
    if stated:
        if stated not in ("Sigmoid", "Identity", "Softmax"):
            raise ExportError(f"the cross-encoder's activation {stated} is not supported: Sigmoid and Identity are")
        return {"Sigmoid": "sigmoid", "Identity": "none", "Softmax": "softmax"}[stated]
    if getattr(config, "problem_type", None) == "regression":
        return "none"
    one = int(config.num_labels) == 1
    if one or getattr(config, "problem_type", None) == "multi_label_classification":
        return "sigmoid"
    return "softmax"


def _embedding(request: NetworkRequest, config: Any, entry: registry.Architecture, chain: Chain) -> Network:
    output = request.output or chain.output
    if output is Output.SPARSE:
        return _sparse(request, config, entry, chain)
    pooling = request.pooling or chain.pooling
    if output is Output.POOLED and pooling in (None, Pooling.AUTO):
        raise ExportError(
            f"{request.source.name} does not say how its authors pool tokens: name --pooling cls, mean or last, "
            "or --output tokens for one vector a token"
        )
    normalize = request.normalize if request.normalize is not None else (chain.normalize or not _is_chain(request))
    model = _encoder(request, config, entry, chain)
    if request.adapter:
        merge_adapter(model, request.adapter)
    head = EmbeddingHead(None if output is Output.TOKENS else pooling, chain.dense, normalize)
    traceable = TraceableLongformer(model) if entry.name == "longformer" else Hidden(model)
    return Network(
        module=Embedding(traceable, head, pad_id(config)), model=model, config=model.config, task=Task.EMBEDDING,
        output=output, pooling=(pooling or Pooling.AUTO) if output is Output.POOLED else Pooling.AUTO, normalize=normalize,
        chain=chain, architecture=entry, shipped=Embedding(Hidden(model), head, pad_id(config)),
    )  # fmt: skip


def _is_chain(request: NetworkRequest) -> bool:
    return (request.source / "modules.json").is_file()


def _sparse(request: NetworkRequest, config: Any, entry: registry.Architecture, chain: Chain) -> Network:
    model = _strict(AutoModelForMaskedLM, chain.transformer, request, config)
    if entry.name in ("longformer", "lfm2"):
        raise ExportError(f"sparse output of {entry.name} is not supported: its masked-LM head has no traced form")
    return Network(
        module=Splade(model, pad_id(config)), model=model, config=model.config, task=Task.EMBEDDING, output=Output.SPARSE,
        pooling=Pooling.AUTO, normalize=False, chain=chain, architecture=entry,
    )  # fmt: skip


def _encoder(request: NetworkRequest, config: Any, entry: registry.Architecture, chain: Chain) -> Any:
    if entry.name != "lfm2":
        return _strict(AutoModel, chain.transformer, request, config)
    model = BidirectionalLfm2(config)
    tensors = weights.read_tensors(chain.transformer)
    for prefix in ("lfm2.", "model.", ""):
        wanted = {k.removeprefix(prefix): v.to(torch.float32) for k, v in tensors.items() if k.startswith(prefix)}
        if "embed_tokens.weight" in wanted:
            break
    wanted = {k: v for k, v in wanted.items() if not k.startswith(("lm_head.", "dense."))}
    wrong = model.load_state_dict(wanted, strict=False)
    _refuse_missing(wrong.missing_keys, chain.transformer)
    return model.eval()


def _strict(kind: Any, folder: Path, request: NetworkRequest, config: Any) -> Any:
    """Load with transformers and refuse what it would fill with random numbers."""
    try:
        model, info = kind.from_pretrained(
            folder, config=config, local_files_only=True, use_safetensors=True, dtype=torch.float32,
            trust_remote_code=request.trust_remote_code, output_loading_info=True,
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError) as error:
        raise ExportError(f"{folder.name} cannot be loaded: {said(error)}") from error
    _refuse_missing(info["missing_keys"], folder)
    return model.eval()


def _refuse_missing(keys: Any, folder: Path) -> None:
    missing = sorted(k for k in keys if not any(h in k for h in _HARMLESS))
    if missing:
        raise ExportError(
            f"{folder.name} has no weights for {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''} "
            f"({len(missing)} tensors): they would be random numbers. The weights belong to another class of the model"
        )
