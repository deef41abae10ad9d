"""An ONNX file or an OpenVINO IR as a source: pooling and normalisation are added, the rest is taken as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import openvino as ov

from numaserve_api.config import Output, Pooling, Task
from numaserve_models import graph
from numaserve_models.errors import ExportError
from numaserve_models.origin import Traits
from numaserve_models.running import Array, Ids, Text, load_tokenizer
from numaserve_models.source.chain import Chain, read_chain

_POSITIONS = 512


def open_graph(source: Path, request: Any) -> GraphOrigin:
    """The source of an ExportRequest. Raises ExportError where the graph is not described well enough."""
    folders = (source.parent, source.parent.parent)
    tokenizer = request.tokenizer or next(
        (f / "tokenizer.json" for f in folders if (f / "tokenizer.json").is_file()), None
    )
    if tokenizer is None:
        raise ExportError(f"{source.name} has no tokenizer.json beside it: name it with --tokenizer")
    chain = next((chain for folder in folders if (chain := read_chain(folder)) is not None), None)
    task = request.task or (chain.task if chain else None) or Task.EMBEDDING
    _check_labels(request, task)
    return GraphOrigin(
        source, tokenizer, _asked(source, request, task, chain, tokenizer), chain or Chain(source.parent)
    )


def _check_labels(request: Any, task: Task) -> None:
    if task in (Task.CLASSIFICATION, Task.TOKEN_CLASSIFICATION) and not request.labels:
        raise ExportError(
            "a classifier's graph does not name its labels: give them in the order of its logits with --labels a,b,c"
        )


def _asked(source: Path, request: Any, task: Task, chain: Chain | None, tokenizer: Path) -> graph.GraphRequest:
    output = request.output or (chain.output if chain else None) or Output.POOLED
    pooling = request.pooling or (chain.pooling if chain else None) or Pooling.AUTO
    if chain is not None and (chain.dense or chain.token_dense):
        raise ExportError(
            f"{source.name} lies in a model whose modules.json names a Dense module, which the graph may not hold: export the "
            "model's directory"
        )
    embeds = task is Task.EMBEDDING
    if embeds and output is Output.POOLED and pooling is Pooling.AUTO:
        raise ExportError(f"{source.name} does not say how its authors pool tokens: name --pooling cls, mean or last")
    normalize = request.normalize if request.normalize is not None else (chain is None or chain.normalize)
    return graph.GraphRequest(
        task=task, output=output, pooling=pooling if embeds and output is Output.POOLED else Pooling.AUTO,
        normalize=normalize and embeds and output is not Output.SPARSE, positions=request.positions or _POSITIONS,
        max_tokens=request.max_tokens or (chain.max_tokens if chain else None), head=request.head, labels=request.labels,
        activation=request.activation or _activation(task, request.labels),
        separator=_separator(tokenizer) if task is Task.RERANK else None,
    )  # fmt: skip


def _activation(task: Task, labels: Sequence[str]) -> str | None:
    """Unless it is stated: a cross-encoder's single score through a sigmoid, a classifier's labels through a softmax."""
    if task is Task.RERANK:
        return "sigmoid" if len(labels) <= 1 else "none"
    return "softmax" if task in (Task.CLASSIFICATION, Task.TOKEN_CLASSIFICATION) else None


def _separator(tokenizer: Path) -> int | None:
    pair = load_tokenizer(tokenizer).encode("a", "b")
    return int(pair.ids[pair.type_ids.index(1) - 1]) if any(pair.type_ids) else None


class GraphOrigin:
    """A graph with what was said about it."""

    tools = ("openvino",)
    remote_code: Mapping[str, str] = {}

    def __init__(self, source: Path, tokenizer: Path, request: graph.GraphRequest, chain: Chain) -> None:
        self._source, self._request = source, request
        self.tokenizer = tokenizer
        self._runner: graph.SourceRunner | None = None
        made = graph.answer_graph(source, request)
        segments = graph.has_segments(graph.read(source))
        self.traits = Traits(
            task=request.task, output=request.output, pooling=request.pooling, normalize=request.normalize,
            positions=request.positions, architecture=source.suffix.lstrip("."), weights_digest=graph.source_digest(source),
            trained=request.max_tokens, vocabulary=graph.vocabulary(made), labels=tuple(request.labels),
            activation=request.activation, prompts=tuple(sorted(chain.prompts.items())), default_prompt=chain.default_prompt,
            dimensions=chain.dimensions, default_dimension=chain.default_dimension, lower_case=chain.lower_case,
            separator=request.separator if segments else None, notes=chain.notes,
        )  # fmt: skip

    def graph(self, by_blocks: bool = False) -> ov.Model:
        """Read anew at each call."""
        if by_blocks:
            raise ExportError("an ONNX file or OpenVINO IR has no block-local form")
        return graph.answer_graph(self._source, self._request)

    def reference(self, ids: Ids, mask: Ids) -> Array:
        """By ONNX Runtime for ONNX, by OpenVINO for an IR, pooled in numpy."""
        if self._runner is None:
            self._runner = graph.SourceRunner(self._source, self._request)
        return self._runner(ids, mask)

    def segments(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """As tokenizer.json has them."""
        return [(list(e.ids), list(e.type_ids)) for e in load_tokenizer(self.tokenizer).encode_batch(list(pairs))]

    def tokenise(self, given: Sequence[Text], max_tokens: int) -> list[list[int]] | None:
        """A graph comes with tokenizer.json alone."""
