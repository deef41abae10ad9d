"""Files that rungs load, each made in a process of its own: ONNX exports, artifacts in other schemes, a source's facts."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numaserve_models.network import Network

_EXTERNAL_FROM = 1_500_000_000
"""Bytes from which weights lie beside the ONNX file: protobuf ends at 2 GB."""


def load_network(described: dict[str, Any]) -> Network:
    """The model of a directory, answering as ``described`` says."""
    from numaserve_api.config import Output, Pooling, Task
    from numaserve_models.network import NetworkRequest, load

    pooling = described.get("pooling")
    return load(
        NetworkRequest(
            source=Path(described["source"]),
            task=Task(described["task"]) if described.get("task") else None,
            output=Output(described["output"]) if described.get("output") else None,
            pooling=None if pooling in (None, Pooling.AUTO.value) else Pooling(pooling),
            normalize=described.get("normalize"),
        )
    )


def libraries() -> dict[str, Any]:
    """Import PyTorch once before it is measured, so that no rung pays in memory for compiling it to bytecode."""
    from numaserve_models.bench.engines import import_runtime

    import_runtime("torch")
    return {}


def describe(source: str) -> dict[str, Any]:
    """What a model directory says of itself, for a bench without an artifact."""
    from numaserve_models.export import ExportRequest
    from numaserve_models.origin import open_origin
    from numaserve_models.source.limits import buckets, limits
    from numaserve_models.source.locate import Location

    path = Path(source)
    origin = open_origin(Location(path, "directory", path.name), ExportRequest(source=path, out=path / "unused"))
    traits = origin.traits
    window = limits(None, traits.trained, traits.tokenizer_limit, traits.positions)
    return {
        "tokenizer": str(origin.tokenizer), "task": traits.task.value, "output": traits.output.value,
        "pooling": traits.pooling.value, "normalize": traits.normalize, "maxTokens": window.max_tokens,
        "buckets": list(buckets(window.max_tokens)), "lowerCase": traits.lower_case, "architecture": traits.architecture,
    }  # fmt: skip


def onnx_export(network: dict[str, Any], file: str, length: int) -> dict[str, Any]:
    """Export with PyTorch's tracer on texts of ``length`` tokens: the form of attention that traces at any length."""
    import torch

    loaded = load_network(network)
    vocabulary = min(1000, int(loaded.config.vocab_size))
    ids = torch.randint(min(5, vocabulary - 1), vocabulary, (2, length), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, length // 2 :] = 0
    names = ["input_ids", "attention_mask"]
    axes = {name: {0: "batch", 1: "length"} for name in names}
    tokens = loaded.output.value == "tokens"
    with loaded.exporting(False) as module, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, (ids, mask), file, dynamo=False, opset_version=17, input_names=names, output_names=["answer"],
            dynamic_axes={**axes, "answer": {0: "batch", **({1: "length"} if tokens else {})}},
        )  # fmt: skip
    return {}


def onnx_int8(file: str, out: str) -> dict[str, Any]:
    """Weights to int8, activations quantised as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    size = sum(path.stat().st_size for path in Path(file).parent.iterdir() if path.is_file())
    quantize_dynamic(file, out, weight_type=QuantType.QInt8, use_external_data_format=size >= _EXTERNAL_FROM)
    return {}


def artifact(source: str, out: str, scheme: str) -> dict[str, Any]:
    """An artifact in another scheme."""
    from numaserve_models.quantize import QuantizeRequest, parse_scheme, quantize

    return {"hash": quantize(Path(source), Path(out), QuantizeRequest(parse_scheme(scheme)))}
