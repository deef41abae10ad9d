"""The sentence-transformers module chain of a model directory, read strictly.

A module that is not understood is named and refused, never skipped: a missing Dense or Normalize gives
vectors of the right shape and the wrong meaning (TEI#749). Formats: sentence-transformers' modules.json,
``*_Pooling/config.json``, ``config_sentence_transformers.json``, ``sentence_bert_config.json``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numaserve_api.config import Output, Pooling
from numaserve_models.errors import ExportError

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
    """What runs after the transformer, and what the files say about its use. Lengths in tokens."""

    transformer: Path
    output: Output = Output.POOLED
    pooling: Pooling | None = None
    dense: tuple[DenseStep, ...] = ()
    normalize: bool = False
    max_tokens: int | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    dimensions: tuple[int, ...] = ()
    lower_case: bool = False


def read_chain(folder: Path) -> Chain | None:
    """The chain of a sentence-transformers directory; None where there is no modules.json. Raises ExportError."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    modules = sorted(read_json(path), key=lambda m: int(m["idx"]))
    kinds = [(str(m["type"]).rpartition(".")[2], folder / str(m.get("path", ""))) for m in modules]
    if not kinds or kinds[0][0] not in ("Transformer", "MLMTransformer"):
        raise ExportError(
            f"modules.json begins with {kinds[0][0] if kinds else 'nothing'}: a Transformer is needed first"
        )
    return _assemble(folder, kinds)


def _assemble(folder: Path, kinds: list[tuple[str, Path]]) -> Chain:
    state: dict[str, Any] = {"pooling": None, "dense": [], "normalize": False, "output": Output.TOKENS}
    for kind, path in kinds[1:]:
        if state["normalize"] and kind != "Normalize":
            raise ExportError(f"modules.json puts {kind} after Normalize: this order is not supported")
        _add(state, kind, path)
    settings = _settings(folder)
    prompts = {str(k): str(v) for k, v in (settings.get("prompts") or {}).items() if v}
    if state.get("exclude_prompt") and prompts:
        raise ExportError(
            "the Pooling module leaves the prompt's tokens out (include_prompt: false), which is not supported"
        )
    return Chain(
        transformer=kinds[0][1],
        output=state["output"],
        pooling=state["pooling"],
        dense=tuple(state["dense"]),
        normalize=bool(state["normalize"]),
        max_tokens=_transformer_setting(kinds[0][1], folder, "max_seq_length"),
        lower_case=bool(_transformer_setting(kinds[0][1], folder, "do_lower_case")),
        prompts=prompts,
        default_prompt=settings.get("default_prompt_name"),
        dimensions=_dimensions(settings, state["dense"]),
    )


def _add(state: dict[str, Any], kind: str, path: Path) -> None:
    if kind == "Pooling":
        config = read_json(path / "config.json")
        state["pooling"], state["output"] = _pooling(config), Output.POOLED
        state["exclude_prompt"] = config.get("include_prompt") is False
    elif kind == "Dense":
        state["dense"].append(_dense(path))
    elif kind == "Normalize":
        state["normalize"] = True
    elif kind == "SpladePooling":
        config = read_json(path / "config.json") if (path / "config.json").is_file() else {}
        if config.get("pooling_strategy", "max") != "max" or config.get("activation_function", "relu") != "relu":
            raise ExportError(f"SpladePooling with {config} is not supported: max over relu is")
        state["output"] = Output.SPARSE
    else:
        raise ExportError(
            f"modules.json names {kind}, which is not understood: Transformer, Pooling, Dense, Normalize and "
            "SpladePooling are. Leaving it out would give other vectors, so nothing was exported"
        )


def _pooling(config: dict[str, Any]) -> Pooling:
    modes = [name for flag, name in _FLAGS.items() if config.get(flag)]
    stated = config.get("pooling_mode")
    modes = [str(m) for m in (stated if isinstance(stated, list) else [stated])] if stated else modes
    if len(modes) != 1 or modes[0] not in _MODES:
        raise ExportError(
            f"the Pooling module uses {' + '.join(modes) or 'no mode'}: one of cls, mean and lasttoken is supported"
        )
    return _MODES[modes[0]]


def _dense(path: Path) -> DenseStep:
    config = read_json(path / "config.json")
    activation = str(config.get("activation_function", "torch.nn.modules.linear.Identity")).rpartition(".")[2]
    if activation not in _ACTIVATIONS:
        raise ExportError(f"the Dense module in {path.name} uses {activation}: {', '.join(_ACTIVATIONS)} are supported")
    if config.get("use_residual"):
        raise ExportError(f"the Dense module in {path.name} has a residual connection, which is not supported")
    return DenseStep(
        path, int(config["in_features"]), int(config["out_features"]), bool(config.get("bias", True)), activation
    )


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / "config_sentence_transformers.json"
    settings: dict[str, Any] = read_json(path) if path.is_file() else {}
    return settings


def _transformer_setting(transformer: Path, folder: Path, key: str) -> Any:
    for name in ("sentence_bert_config.json", "sentence_xlm-roberta_config.json", "sentence_roberta_config.json"):
        for place in (transformer / name, folder / name):
            if place.is_file() and (value := read_json(place).get(key)):
                return value
    return None


def _dimensions(settings: dict[str, Any], dense: list[DenseStep]) -> tuple[int, ...]:
    """Matryoshka sizes the model was trained for, full size first; empty where the files name none."""
    named = settings.get("matryoshka_dimensions") or settings.get("matryoshka_dims") or ()
    truncate = settings.get("truncate_dim")
    sizes = {int(d) for d in named} | ({int(truncate)} if truncate else set())
    if dense:
        sizes = {d for d in sizes if d <= dense[-1].outputs}
    return tuple(sorted(sizes, reverse=True))


def read_json(path: Path) -> Any:
    """A JSON file. Raises ExportError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ExportError(f"{path.name} is missing in {path.parent.name}/: copy the whole model directory") from error
    except (ValueError, OSError) as error:
        raise ExportError(f"{path.name} is not readable JSON ({error}): copy the model again") from error
