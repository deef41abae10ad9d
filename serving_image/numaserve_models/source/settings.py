"""The settings files of a sentence-transformers directory: each key is understood, at its default, or refused by name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numaserve_api.config import Task
from numaserve_models.errors import ExportError, said

_ENCODER_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_TASKS = {"feature-extraction": None, "fill-mask": None, "sequence-classification": Task.RERANK}
_FORWARD = {"method": "forward"}
_OUTPUTS = {"last_hidden_state", "logits"}
MAX_DIMENSIONS = 16
_ELSEWHERE = {
    "max_seq_length",
    "do_lower_case",
    "transformer_task",
    "module_output_name",
    "unpad_inputs",
    "backend",
    "query_length",
    "document_length",
    "query_expansion",
}


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """What the Transformer module is told. Lengths in tokens; ``task`` where it is a classifier."""

    max_tokens: int | None = None
    lower_case: bool = False
    task: Task | None = None


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What config_sentence_transformers.json says. ``notes`` are told to whoever exports."""

    kind: str | None
    prompts: dict[str, str]
    default_prompt: str | None
    matryoshka: tuple[int, ...]
    truncate: int | None
    max_active: int | None
    activation: str | None
    notes: tuple[str, ...]


def read_json(path: Path) -> Any:
    """A JSON file. Raises ExportError."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ExportError(f"{path.name} is missing in {path.parent.name}/: copy the whole model directory") from error
    except (ValueError, OSError) as error:
        raise ExportError(f"{path.name} is not readable JSON ({error}): copy the model again") from error


@contextmanager
def well_formed(what: str) -> Iterator[None]:
    """JSON of another shape than the library writes, in one sentence."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        detail = f"no {error}" if isinstance(error, KeyError) else said(error)
        raise ExportError(
            f"{what} is not as sentence-transformers writes it ({detail}): copy the model again"
        ) from error


def transformer_settings(transformer: Path, folder: Path) -> EncoderSettings:
    """Of the first of the library's file names that is there. Raises ExportError for what would change the answer."""
    places = [place / name for place in (transformer, folder) for name in _ENCODER_FILES]
    path = next((p for p in places if p.is_file()), None)
    if path is None:
        return EncoderSettings()
    config = read_json(path)
    with well_formed(path.name):
        task = str(config.get("transformer_task") or "feature-extraction")
        if task not in _TASKS:
            raise ExportError(f"{path.name} sets transformer_task {task}: {', '.join(_TASKS)} are supported")
        for key, value in config.items():
            _refuse(path.name, key, value)
        tokens = config.get("max_seq_length")
        if tokens is not None and (not isinstance(tokens, int) or tokens < 1):
            raise ExportError(f"{path.name} sets max_seq_length {tokens!r}: a number of tokens is needed")
        return EncoderSettings(tokens, bool(config.get("do_lower_case")), _TASKS[task])


def _refuse(name: str, key: str, value: Any) -> None:
    if key in _ELSEWHERE or value in (None, {}, [], False):
        return
    if key == "modality_config" and _plain(value):
        return
    if key.endswith(("_args", "_kwargs")) and not {k: v for k, v in dict(value).items() if not _idle(k, v)}:
        return
    raise ExportError(
        f"{name} sets {key} to {json.dumps(value)[:120]}, which is not understood: leaving it out could give other vectors, so "
        "nothing was exported"
    )


def _plain(modalities: Mapping[str, Any]) -> bool:
    """The text modality through forward(), read where every model has it."""
    return set(modalities) == {"text"} and all(
        _FORWARD.get(k) == v or (k == "method_output_name" and str(v) in _OUTPUTS)
        for k, v in modalities["text"].items()
    )


def _idle(key: str, value: Any) -> bool:
    """Settings of loading that do not change what is computed in FP32."""
    return value in (None, {}) or key in (
        "torch_dtype",
        "dtype",
        "attn_implementation",
        "use_safetensors",
        "add_pooling_layer",
    )


def model_settings(folder: Path) -> ModelSettings:
    """Raises ExportError where they contradict themselves."""
    path = folder / "config_sentence_transformers.json"
    config: dict[str, Any] = read_json(path) if path.is_file() else {}
    with well_formed(path.name):
        prompts = {str(k): str(v) for k, v in dict(config.get("prompts") or {}).items()}
        for name, key in (("query", "query_prefix"), ("document", "document_prefix")):
            if config.get(key):
                prompts.setdefault(name, str(config[key]))
        default = config.get("default_prompt_name")
        if default is not None and default not in prompts:
            raise ExportError(
                f"{path.name} names default prompt {default!r}, its prompts are {', '.join(prompts) or 'none'}"
            )
        sizes = config.get("matryoshka_dimensions") or config.get("matryoshka_dims") or ()
        matryoshka = tuple(
            _size(path.name, d) for d in (sizes if isinstance(sizes, list) else [sizes] if sizes else [])
        )
        if len(set(matryoshka)) > MAX_DIMENSIONS:
            raise ExportError(
                f"{path.name} names {len(set(matryoshka))} Matryoshka sizes, at most {MAX_DIMENSIONS} can be offered"
            )
        truncate, active = config.get("truncate_dim"), config.get("max_active_dims")
        return ModelSettings(
            kind=config.get("model_type"), prompts=prompts, default_prompt=default, matryoshka=matryoshka,
            truncate=_size(path.name, truncate) if truncate else None, max_active=int(active) if active else None,
            activation=config.get("activation_fn"), notes=_notes(config),
        )  # fmt: skip


def _size(name: str, value: Any) -> int:
    if not isinstance(value, int) or value < 1:
        raise ExportError(f"{name} names a dimension {value!r}: whole numbers above 0 are sizes")
    return value


def _notes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """What a ColBERT model's own library does around the model, which nobody does here."""
    found = []
    if config.get("do_query_expansion") or config.get("query_expansion"):
        length = config.get("query_length")
        found.append(
            f"queries were trained expanded with mask tokens{f' to {length}' if length else ''}: callers do that"
        )
    if config.get("skiplist_words"):
        found.append("vectors of the skiplist's words are not left out: callers do that")
    return tuple(found)
