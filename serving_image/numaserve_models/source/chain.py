"""The sentence-transformers module chain of a model directory, read strictly.

Whatever would change the answer and is not understood is named and refused, never skipped: a missing Dense or
Normalize gives vectors of the right shape and the wrong meaning (TEI#749). Formats: sentence-transformers'
modules.json, module configs and config_sentence_transformers.json; PyLate's settings of ColBERT models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numaserve_api.config import Output, Pooling, Task
from numaserve_models.errors import ExportError
from numaserve_models.source import settings as files
from numaserve_models.source.settings import read_json

_MODES = {"cls": Pooling.CLS, "mean": Pooling.MEAN, "lasttoken": Pooling.LAST, "last": Pooling.LAST}
_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
_KNOWN_CODE = ("sentence_transformers.", "pylate.models.")
_TOKENS, _SENTENCE = "token_embeddings", "sentence_embedding"


@dataclass(frozen=True, slots=True)
class DenseStep:
    """One Dense module: a linear layer and an activation by its torch name."""

    folder: Path
    inputs: int
    outputs: int
    bias: bool
    activation: str


@dataclass(frozen=True, slots=True)
class Chain:
    """What runs after the transformer, and what the files say about its use. Lengths in tokens.

    ``token_dense`` runs on each token, before a pooling; ``dense`` on what was pooled. ``output`` is None where
    the chain ends in the transformer and does not say what its answer is.
    """

    transformer: Path
    task: Task | None = None
    output: Output | None = Output.POOLED
    pooling: Pooling | None = None
    token_dense: tuple[DenseStep, ...] = ()
    dense: tuple[DenseStep, ...] = ()
    normalize: bool = False
    max_tokens: int | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    dimensions: tuple[int, ...] = ()
    default_dimension: int | None = None
    lower_case: bool = False
    activation: str | None = None
    notes: tuple[str, ...] = ()


def read_chain(folder: Path) -> Chain | None:
    """The chain of a sentence-transformers directory; None where there is no modules.json. Raises ExportError."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    with files.well_formed("modules.json or a module's config"):
        modules = sorted(read_json(path), key=lambda m: int(m["idx"]))
        kinds = [(_kind(str(m["type"])), folder / str(m.get("path", ""))) for m in modules]
        if not kinds or kinds[0][0] not in ("Transformer", "MLMTransformer"):
            raise ExportError(
                f"modules.json begins with {kinds[0][0] if kinds else 'nothing'}: a Transformer is needed first"
            )
        return _Reader(folder, kinds[0][1]).read(kinds[1:])


def _kind(name: str) -> str:
    """The class's name, where the class is one of the libraries' own."""
    if not name.startswith(_KNOWN_CODE):
        raise ExportError(
            f"modules.json names {name}, code of the model's own, which is not run: leaving it out would give other vectors, "
            "so nothing was exported"
        )
    return name.rpartition(".")[2]


class _Reader:
    """Goes through the modules in order and keeps what they add up to."""

    def __init__(self, folder: Path, transformer: Path) -> None:
        self.folder, self.transformer = folder, transformer
        self.settings = files.model_settings(folder)
        self.encoder = files.transformer_settings(transformer, folder)
        self.pooling: Pooling | None = None
        self.token_dense: list[DenseStep] = []
        self.dense: list[DenseStep] = []
        self.normalize = self.sparse = self.pooled = False

    def read(self, modules: list[tuple[str, Path]]) -> Chain:
        """All modules after the transformer."""
        for kind, path in modules:
            self._add(kind, path)
        settings, encoder = self.settings, self.encoder
        colbert = settings.kind == "ColBERT"
        return Chain(
            transformer=self.transformer, task=encoder.task, output=self._output(), pooling=self.pooling,
            token_dense=tuple(self.token_dense), dense=tuple(self.dense), normalize=self.normalize or colbert,
            max_tokens=encoder.max_tokens, prompts=settings.prompts, default_prompt=settings.default_prompt,
            dimensions=self._dimensions(), default_dimension=settings.truncate, lower_case=encoder.lower_case,
            activation=settings.activation, notes=settings.notes,
        )  # fmt: skip

    def _output(self) -> Output | None:
        if self.sparse:
            return Output.SPARSE
        if self.pooled:
            return Output.POOLED
        return Output.TOKENS if self.token_dense or self.normalize or self.settings.kind == "ColBERT" else None

    def _add(self, kind: str, path: Path) -> None:
        if self.sparse or (self.normalize and kind != "Normalize"):
            raise ExportError(
                f"modules.json puts {kind} after {'SpladePooling' if self.sparse else 'Normalize'}: this order is not supported"
            )
        if kind == "Pooling":
            self._add_pooling(read_json(path / "config.json"))
        elif kind == "Dense":
            config = read_json(path / "config.json")
            self._check_keys(kind, path, config)
            (self.dense if self.pooled else self.token_dense).append(_dense(path, config))
        elif kind == "Normalize":
            self._check_keys(kind, path, read_json(path / "config.json") if (path / "config.json").is_file() else {})
            self.normalize = True
        elif kind == "SpladePooling":
            self._add_splade(path)
        else:
            raise ExportError(
                f"modules.json names {kind}, which is not understood: Transformer, Pooling, Dense, Normalize and "
                "SpladePooling are. Leaving it out would give other vectors, so nothing was exported"
            )

    def _add_pooling(self, config: Mapping[str, Any]) -> None:
        if self.pooled:
            raise ExportError("modules.json names two Pooling modules: which one answers is not clear")
        self.pooling, self.pooled = _pooling(config), True
        if config.get("include_prompt") is False and any(self.settings.prompts.values()):
            raise ExportError(
                "the Pooling module leaves the prompt's tokens out (include_prompt: false), which is not supported"
            )

    def _add_splade(self, path: Path) -> None:
        config = read_json(path / "config.json") if (path / "config.json").is_file() else {}
        if config.get("pooling_strategy", "max") != "max" or config.get("activation_function", "relu") != "relu":
            raise ExportError(f"SpladePooling with {config} is not supported: max over relu is")
        if self.settings.max_active:
            raise ExportError(
                f"max_active_dims {self.settings.max_active} keeps only that many terms, which is not supported: remove it from "
                "config_sentence_transformers.json and cut in the caller"
            )
        self.sparse = True

    def _check_keys(self, kind: str, path: Path, config: Mapping[str, Any]) -> None:
        """A module must read and write what the one before it wrote."""
        here = _SENTENCE if self.pooled else _TOKENS
        reads = config.get("module_input_name") or here
        writes = config.get("module_output_name") or reads
        if reads != here or writes != here:
            raise ExportError(
                f"the {kind} module in {path.name} reads {reads} and writes {writes} where {here} goes through: this is not supported"
            )

    def _dimensions(self) -> tuple[int, ...]:
        """Matryoshka sizes the model was trained for, full size first; empty where the files name none."""
        sizes = set(self.settings.matryoshka) | ({self.settings.truncate} if self.settings.truncate else set())
        if self.dense:
            sizes = {d for d in sizes if d <= self.dense[-1].outputs}
        return tuple(sorted(sizes, reverse=True))


def _pooling(config: Mapping[str, Any]) -> Pooling:
    modes = [name for flag, name in _FLAGS.items() if config.get(flag)]
    stated = config.get("pooling_mode")
    modes = [str(m) for m in (stated if isinstance(stated, list) else [stated])] if stated else modes
    if len(modes) != 1 or modes[0] not in _MODES:
        raise ExportError(
            f"the Pooling module uses {' + '.join(modes) or 'no mode'}: one of cls, mean and lasttoken is supported"
        )
    return _MODES[modes[0]]


def _dense(path: Path, config: Mapping[str, Any]) -> DenseStep:
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))  # the library's default
    activation = name.rpartition(".")[2]
    if not name.startswith("torch.") or activation not in _ACTIVATIONS:
        raise ExportError(
            f"the Dense module in {path.name} uses {name}: torch's {', '.join(_ACTIVATIONS)} are supported"
        )
    if config.get("use_residual"):
        raise ExportError(f"the Dense module in {path.name} has a residual connection, which is not supported")
    return DenseStep(
        path, int(config["in_features"]), int(config["out_features"]), bool(config.get("bias", True)), activation
    )
