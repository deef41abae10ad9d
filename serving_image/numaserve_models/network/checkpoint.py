"""Reading a config and weights with transformers: what does not fit is refused, never filled in or left out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModel

from numaserve_models.errors import ExportError, said
from numaserve_models.network import registry, weights
from numaserve_models.network.lfm2 import BidirectionalLfm2

_UNUSED_BY_ENCODERS = ("pooler.", "lm_head.", "cls.")
"""Heads that an encoder's hidden states do not go through: they may be missing, and random then."""
_BUFFERS = ("position_ids", "embeddings.token_type_ids")
_OTHER_HEADS = (
    "cls.", "lm_head.", "pooler.", "classifier.", "score.", "qa_outputs.", "decoder.", "head.", "discriminator_predictions.",
    "generator_predictions.", "generator_lm_head.", "vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "mask_predictions.",
    "pre_classifier.", "logit_scale",
)  # fmt: skip
"""Heads of other classes over the same encoder: they may be there, unused."""


def read_config(folder: Path, trust: bool) -> Any:
    """The transformers config. Raises ExportError, also for code that comes with the model and is not trusted."""
    if (folder / "adapter_config.json").is_file():
        raise ExportError(
            f"{folder.name} holds adapter_config.json beside the model: name the adapter's folder with --adapter, and the base "
            "model's as the source"
        )
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trust)
        # Read here: a config that cannot say its labels would fail in the middle of loading.
        labels = {int(k): str(v) for k, v in dict(config.id2label or {}).items()}
    except Exception as error:  # transformers raises whatever a field of the wrong type leads to
        if not trust and "trust_remote_code" in str(error):
            raise _untrusted(folder) from error
        raise ExportError(f"{folder.name}/config.json cannot be used: {said(error)}") from error
    if sorted(labels) != list(range(len(labels))):
        raise ExportError(f"{folder.name}/config.json numbers its labels {sorted(labels)}: id2label must count from 0")
    if hasattr(config, "use_cache"):
        config.use_cache = False  # an encoder keeps no keys between calls, and a cache does not trace
    _refuse_foreign(config, folder, trust)
    return config


def _untrusted(folder: Path) -> ExportError:
    files = ", ".join(sorted(p.name for p in folder.glob("*.py"))) or "files of its repository"
    return ExportError(
        f"{folder.name} brings code of its own ({files}): read it, and pass --trust-remote-code to run it with your rights"
    )


def _refuse_foreign(config: Any, folder: Path, trust: bool) -> None:
    """A class that transformers does not have, under a type that it has: its own layers would compute something else."""
    names = [str(n) for n in getattr(config, "architectures", None) or []]
    foreign = [n for n in names if not hasattr(transformers, n)]
    if foreign and not trust and getattr(config, "auto_map", None) and not registry.is_lfm2(config):
        raise ExportError(
            f"{folder.name} is of class {foreign[0]}, which transformers does not have: its code comes with the model. Read it, and "
            "pass --trust-remote-code to run it with your rights"
        )


def encoder(folder: Path, config: Any, trust: bool) -> Any:
    """The base model, whose answer are hidden states."""
    if not registry.is_lfm2(config):
        return pretrained(AutoModel, folder, config, trust, _UNUSED_BY_ENCODERS)
    model = BidirectionalLfm2(config)
    tensors = weights.read_tensors(folder)
    for prefix in ("lfm2.", "model.", ""):
        wanted = {k.removeprefix(prefix): v.to(torch.float32) for k, v in tensors.items() if k.startswith(prefix)}
        if "embed_tokens.weight" in wanted:
            break
    wrong = model.load_state_dict(wanted, strict=False)
    _refuse_missing(wrong.missing_keys, folder, ())
    _refuse_unused(wrong.unexpected_keys, folder)
    return model.eval()


def pretrained(kind: Any, folder: Path, config: Any, trust: bool, harmless: tuple[str, ...] = ()) -> Any:
    """Load with transformers; tensors that begin with ``harmless`` may be missing."""
    try:
        model, info = kind.from_pretrained(
            folder, config=config, local_files_only=True, use_safetensors=True, dtype=torch.float32,
            trust_remote_code=trust, output_loading_info=True,
        )  # fmt: skip
    except Exception as error:  # from whatever a config of the wrong shape leads to
        raise ExportError(f"{folder.name} cannot be loaded: {said(error)}") from error
    _refuse_missing(info["missing_keys"], folder, harmless)
    _refuse_unused(info["unexpected_keys"], folder)
    return model.eval()


def _refuse_missing(keys: Iterable[str], folder: Path, harmless: tuple[str, ...]) -> None:
    missing = sorted(k for k in keys if not any(h in k for h in (*harmless, *_BUFFERS)))
    if missing:
        raise ExportError(
            f"{folder.name} has no weights for {', '.join(missing[:3])}{' …' if len(missing) > 3 else ''} "
            f"({len(missing)} tensors): they would be random numbers. The weights belong to another class of the model"
        )


def _refuse_unused(keys: Iterable[str], folder: Path) -> None:
    unused = sorted(k for k in keys if not any(h in f".{k}" for h in (*(f".{o}" for o in _OTHER_HEADS), *_BUFFERS)))
    if unused:
        raise ExportError(
            f"{folder.name} holds {', '.join(unused[:3])}{' …' if len(unused) > 3 else ''}, which this class of the model does not "
            "use: a projection left out would give other vectors. Describe it as a Dense module (modules.json), or export to ONNX"
        )
