"""Weights read safely: safetensors only, whole, finite, and large enough for the tokenizer."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from numaserve_models.errors import ExportError
from numaserve_models.source.locate import PICKLES
from numaserve_models.source.pointer import refuse_pointer


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a model directory. Raises ExportError where there are only pickles, or nothing."""
    found = sorted(folder.glob("*.safetensors"))
    if found:
        for path in found:
            _check_whole(path)
        return found
    pickles = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
    if pickles:
        raise ExportError(
            f"{folder.name} has its weights only as {', '.join(pickles[:3])}: pickles execute code when they are read and "
            "are refused. Save the model with safe_serialization=True where you trust it"
        )
    raise ExportError(f"{folder.name} has no *.safetensors weights: copy the whole model directory")


def _check_whole(path: Path) -> None:
    refuse_pointer(path)
    try:
        with safe_open(path, framework="pt") as tensors:
            names = list(tensors.keys())
    except (SafetensorError, OSError) as error:
        raise ExportError(f"{path.name} is not a whole safetensors file ({error}): copy it again") from error
    if not names:
        raise ExportError(f"{path.name} holds no tensors: copy it again")


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of a directory's safetensors files by name."""
    tensors: dict[str, torch.Tensor] = {}
    for path in weight_files(folder):
        with safe_open(path, framework="pt") as opened:
            tensors.update({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118 -- no mapping
    return tensors


def check_finite(model: torch.nn.Module) -> None:
    """Refuse weights that hold NaN or infinity, naming the first tensor."""
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ExportError(f"weight {name} holds NaN or infinity: the model was saved broken; take another revision")
