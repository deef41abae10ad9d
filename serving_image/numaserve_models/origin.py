"""What is exported, whatever it came from: a graph to make, and answers of the source to compare it with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import openvino as ov

from numaserve_api.config import Output, Pooling, Task
from numaserve_models import graph
from numaserve_models.digest import digest_file
from numaserve_models.errors import ExportError
from numaserve_models.running import Array, Ids
from numaserve_models.source.locate import Location


@dataclass(frozen=True, slots=True)
class Traits:
    """What the source says of itself. Lengths in tokens; ``declared`` are the layers its config describes.

    ``separator`` is the token whose first occurrence begins a cross-encoder's second segment, None without segments.
    """

    task: Task
    output: Output
    pooling: Pooling
    normalize: bool
    positions: int
    architecture: str
    weights_digest: str
    trained: int | None = None
    tokenizer_limit: int | None = None
    declared: tuple[str, ...] | None = None
    sliding: bool = False
    vocabulary: int | None = None
    lower_case: bool = False
    separator: int | None = None
    labels: tuple[str, ...] = ()
    activation: str | None = None
    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str | None = None
    dimensions: tuple[int, ...] = ()


class Origin(Protocol):
    """A source of either kind."""

    @property
    def traits(self) -> Traits:
        """What the source says of itself."""
        ...

    @property
    def tokenizer(self) -> Path:
        """Its tokenizer.json."""
        ...

    @property
    def tools(self) -> tuple[str, ...]:
        """Distributions whose versions decide what comes out."""
        ...

    @property
    def remote_code(self) -> Mapping[str, str]:
        """Python files of the model that were run, with their digests."""
        ...

    def graph(self, by_blocks: bool = False) -> ov.Model:
        """The graph to export, sliding layers block by block where asked."""
        ...

    def reference(self, ids: Ids, mask: Ids) -> Array:
        """The source's own answer, float32 [batch, …]."""
        ...


def open_origin(location: Location, request: Any) -> Origin:
    """The source of an ExportRequest. Raises ExportError."""
    if location.kind == "directory":
        return _torch_origin(location.path, request)
    tokenizer = request.tokenizer or location.path.with_name("tokenizer.json")
    if not tokenizer.is_file():
        raise ExportError(f"{location.path.name} has no tokenizer.json beside it: name it with --tokenizer")
    task = request.task or Task.EMBEDDING
    asked = graph.GraphRequest(
        task=task, output=request.output or Output.POOLED, pooling=request.pooling or Pooling.MEAN,
        normalize=request.normalize is not False and task is Task.EMBEDDING, positions=request.positions or 512,
        max_tokens=request.max_tokens, head=request.head, labels=request.labels, activation=request.activation,
    )  # fmt: skip
    return GraphOrigin(location.path, tokenizer, asked)


def _torch_origin(source: Path, request: Any) -> TorchOrigin:
    if request.head is not None:
        raise ExportError(
            "--head names an output of an ONNX file or OpenVINO IR; for a directory use --task and --output"
        )
    try:
        from numaserve_models.network import NetworkRequest
    except ImportError as error:
        raise ExportError(
            f"a model directory needs PyTorch and transformers ({error}): install numaserve[models]"
        ) from error
    asked = NetworkRequest(
        source=source, task=request.task, output=request.output, pooling=request.pooling, normalize=request.normalize,
        adapter=request.adapter, trust_remote_code=request.trust_remote_code, tokenizer=request.tokenizer,
    )  # fmt: skip
    return TorchOrigin(asked, request.tokenizer)


class TorchOrigin:
    """A Hugging Face or sentence-transformers directory."""

    tools = ("openvino", "torch", "transformers")

    def __init__(self, request: Any, tokenizer: Path | None) -> None:
        from numaserve_models.network import load

        self._network = load(request)
        folder = self._network.chain.transformer
        self.tokenizer = tokenizer or _tokenizer_file(folder, request.source)
        self.traits = self._traits(request, folder)
        self.remote_code = _code_files(folder) if request.trust_remote_code else {}

    def graph(self, by_blocks: bool = False) -> ov.Model:
        """Traced anew at each call: quantising changes a graph in place."""
        from numaserve_models.tracing import trace

        return trace(self._network, by_blocks)

    def reference(self, ids: Ids, mask: Ids) -> Array:
        """With transformers' own layers and attention."""
        import torch

        answer: Array = (
            self._network.reference(torch.from_numpy(ids), torch.from_numpy(mask)).numpy().astype(np.float32)
        )
        return answer

    def _traits(self, request: Any, folder: Path) -> Traits:
        from numaserve_models.network import registry
        from numaserve_models.source.limits import tokenizer_limit

        network, chain = self._network, self._network.chain
        declared = registry.declared_layers(network.config, network.leading)
        return Traits(
            task=network.task, output=network.output, pooling=network.pooling, normalize=network.normalize,
            positions=registry.positions(network.config, network.architecture), architecture=network.architecture.name,
            weights_digest=_weights_digest(request, chain), trained=chain.max_tokens, tokenizer_limit=tokenizer_limit(folder),
            declared=tuple(declared) if declared else None, sliding=network.sliding,
            vocabulary=int(network.model.get_input_embeddings().weight.shape[0]), lower_case=chain.lower_case,
            labels=network.labels, activation=network.activation,
            prompts=tuple(sorted(chain.prompts.items())), default_prompt=chain.default_prompt, dimensions=chain.dimensions,
            separator=network.separator,
        )  # fmt: skip


def _tokenizer_file(folder: Path, source: Path) -> Path:
    for place in (folder, source):
        if (place / "tokenizer.json").is_file():
            return place / "tokenizer.json"
    raise ExportError(
        f"{source.name} has no tokenizer.json: save it with transformers' fast tokenizer (save_pretrained), or name --tokenizer"
    )


def _code_files(folder: Path) -> dict[str, str]:
    return {path.name: digest_file(path) for path in sorted(folder.glob("*.py"))}


def _weights_digest(request: Any, chain: Any) -> str:
    """One digest over every weight file that takes part: encoder, Dense modules, adapter."""
    folders = [
        chain.transformer,
        *(step.folder for step in chain.dense),
        *([request.adapter] if request.adapter else []),
    ]
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.glob("*.safetensors")):
            digest.update(f"{path.name}={digest_file(path)}\n".encode())
    return "sha256:" + digest.hexdigest()


class GraphOrigin:
    """An ONNX file or an OpenVINO IR: pooling and normalisation are added, the rest is taken as it is."""

    tools = ("openvino",)
    remote_code: Mapping[str, str] = {}

    def __init__(self, source: Path, tokenizer: Path, request: graph.GraphRequest) -> None:
        self._source, self._request = source, request
        self.tokenizer = tokenizer
        self._runner: graph.SourceRunner | None = None
        made = graph.answer_graph(source, request)
        self.traits = Traits(
            task=request.task, output=request.output, pooling=request.pooling, normalize=request.normalize,
            positions=request.positions, architecture=source.suffix.lstrip("."), weights_digest=graph.source_digest(source),
            trained=request.max_tokens, vocabulary=graph.vocabulary(made), labels=tuple(request.labels),
            activation=request.activation, prompts=(), dimensions=(),
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
