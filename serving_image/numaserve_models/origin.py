"""What is exported, whatever it came from: a graph to make, and answers of the source to compare it with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import openvino as ov

from numaserve_api.config import Output, Pooling, Task
from numaserve_api.revision import short_hash
from numaserve_models.digest import digest_file
from numaserve_models.errors import ExportError, said
from numaserve_models.running import Array, Ids, Text
from numaserve_models.source.locate import Location
from numaserve_models.source.settings import read_json

_INCIDENTAL = {
    "transformers_version",
    "torch_dtype",
    "dtype",
    "use_cache",
    "base_model_name_or_path",
    "revision",
    "auto_map",
}


@dataclass(frozen=True, slots=True)
class Traits:
    """What the source says of itself. Lengths in tokens; ``declared`` are the layers its config describes.

    ``separator`` is the token whose first occurrence begins a cross-encoder's second segment, None without segments.
    ``settings_digest`` covers what, besides weights and tokenizer, decides where a text lands.
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
    default_dimension: int | None = None
    truncate_side: Literal["left", "right"] = "right"
    settings_digest: str = ""
    notes: tuple[str, ...] = ()


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

    def segments(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """Ids and segments of pairs as the source's own library feeds them."""
        ...

    def tokenise(self, given: Sequence[Text], max_tokens: int) -> list[list[int]] | None:
        """Ids as the source's own library makes and cuts them; None where it has no tokenizer but tokenizer.json."""
        ...


def open_origin(location: Location, request: Any) -> Origin:
    """The source of an ExportRequest. Raises ExportError."""
    if location.kind == "directory":
        return _torch_origin(location.path, request)
    from numaserve_models.graph_origin import open_graph

    return open_graph(location.path, request)


def _torch_origin(source: Path, request: Any) -> TorchOrigin:
    for name, value in (("--head", request.head), ("--labels", request.labels), ("--activation", request.activation)):
        if value:
            raise ExportError(
                f"{name} describes an ONNX file or OpenVINO IR; a model directory says it in its own files"
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
        self._own_tokenizer = None if tokenizer else folder
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

    def segments(self, pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        """By the class that transformers takes for the directory."""
        from numaserve_models.network.labels import fed_pairs

        folder = self._network.chain.transformer
        return fed_pairs(None if self._own_tokenizer else self.tokenizer, folder, pairs)

    def tokenise(self, given: Sequence[Text], max_tokens: int) -> list[list[int]] | None:
        """By the class that tokenizer_config.json names, with its settings."""
        folder = self._own_tokenizer
        if folder is None or not (folder / "tokenizer_config.json").is_file():
            return None
        from transformers import AutoTokenizer

        fold = str.lower if self.traits.lower_case else str
        pairs = [(fold(g), None) if isinstance(g, str) else (fold(g[0]), fold(g[1])) for g in given]
        try:
            own = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            fed = [own(*pair, truncation=True, max_length=max_tokens)["input_ids"] for pair in pairs]
        except BaseException as error:  # the Rust side panics with a BaseException
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            raise ExportError(f"{folder.name} has a tokenizer that transformers cannot load: {said(error)}") from error
        return [list(ids) for ids in fed]

    def _traits(self, request: Any, folder: Path) -> Traits:
        from numaserve_models.network import registry
        from numaserve_models.source.limits import tokenizer_limit, truncation_side

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
            separator=network.separator, default_dimension=chain.default_dimension, notes=chain.notes,
            truncate_side=truncation_side(folder), settings_digest=_settings_digest(request, chain),
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


def _parts(request: Any, chain: Any) -> list[Path]:
    """Folders of everything that takes part: encoder, Dense modules, adapter."""
    steps = [step.folder for step in (*chain.token_dense, *chain.dense)]
    return [chain.transformer, *steps, *([request.adapter] if request.adapter else [])]


def _settings_digest(request: Any, chain: Any) -> str:
    """Over the settings of all parts, without what only says who wrote them and how they are loaded."""
    told = []
    for folder in _parts(request, chain):
        for name in ("config.json", "adapter_config.json"):
            if (folder / name).is_file():
                config = read_json(folder / name)
                told.append({k: v for k, v in config.items() if k not in _INCIDENTAL and not k.startswith("_")})
    return short_hash(told)


def _weights_digest(request: Any, chain: Any) -> str:
    """One digest over every weight file that takes part."""
    digest = hashlib.sha256()
    for folder in _parts(request, chain):
        for path in sorted(folder.glob("*.safetensors")):
            digest.update(f"{path.name}={digest_file(path)}\n".encode())
    return "sha256:" + digest.hexdigest()
