"""LoRA adapters merged into the weights before export: W + alpha / r · B·A (arXiv:2106.09685).

The format is PEFT's: adapter_config.json and adapter_model.safetensors in one folder.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import torch

from numaserve_models.errors import ExportError
from numaserve_models.network.weights import read_tensors
from numaserve_models.source.settings import read_json

_KEY = re.compile(r"^(?:base_model\.model\.)?(?P<module>.+)\.lora_(?P<part>A|B|embedding_A|embedding_B)(?:\.weight)?$")


def merge_adapter(model: torch.nn.Module, folder: Path) -> None:
    """Add a LoRA adapter to a model's weights in place. Raises ExportError where it does not fit wholly."""
    config = read_json(folder / "adapter_config.json")
    if str(config.get("peft_type", "LORA")).upper() != "LORA" or config.get("use_dora"):
        raise ExportError(f"adapter {folder.name} is {config.get('peft_type')}: plain LoRA adapters can be merged")
    for key in ("alpha_pattern", "rank_pattern", "modules_to_save"):
        if config.get(key):
            raise ExportError(
                f"adapter {folder.name} sets {key}, which is not supported: merge it with peft and give the merged model"
            )
    pairs: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in read_tensors(folder).items():
        match = _KEY.match(name)
        if match is None:
            raise ExportError(f"adapter {folder.name} holds {name}, which is no LoRA weight: nothing was merged")
        pairs.setdefault(match["module"], {})[match["part"]] = tensor.to(torch.float32)
    modules = dict(model.named_modules())
    for name, parts in pairs.items():
        _add(modules, name, parts, config, folder.name)


def _add(
    modules: dict[str, Any], name: str, parts: dict[str, torch.Tensor], config: dict[str, Any], folder: str
) -> None:
    target = modules.get(name) or modules.get(name.partition(".")[2])
    if target is None or not hasattr(target, "weight"):
        raise ExportError(
            f"adapter {folder} changes {name}, which this model does not have: it belongs to another model"
        )
    sides = ("A", "B") if "A" in parts or "B" in parts else ("embedding_A", "embedding_B")
    if any(side not in parts for side in sides):
        raise ExportError(f"adapter {folder} has only one half of {name}: copy the adapter again")
    rank = int(parts[sides[0]].shape[0])
    alpha = float(config.get("lora_alpha") or rank)
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    by_row = "embedding_A" in parts
    change = (parts["embedding_B"] @ parts["embedding_A"]).T if by_row else parts["B"] @ parts["A"]
    if change.shape != target.weight.shape:
        raise ExportError(
            f"adapter {folder} changes {name} of shape {list(target.weight.shape)} by {list(change.shape)}"
        )
    with torch.no_grad():
        target.weight += scale * change
