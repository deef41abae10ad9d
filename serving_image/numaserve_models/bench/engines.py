"""The runtimes behind one call: ids and mask, int64 [batch, length], to the answer, float32 [batch, …]."""

from __future__ import annotations

import importlib
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from numaserve_models.errors import ExportError
from numaserve_models.running import Array, Ids


class Engine(Protocol):
    """A loaded model."""

    def __call__(self, ids: Ids, mask: Ids) -> Array:
        """The answer of one batch."""
        ...

    def facts(self) -> dict[str, Any]:
        """What the runtime says of itself, JSON-compatible; call it after a run."""
        ...


def make(engine: dict[str, Any]) -> Engine:
    """The engine a description names. Raises ExportError, or whatever the runtime raises."""
    kinds = {"torch": TorchEngine, "onnxruntime": OnnxEngine, "openvino": OpenVinoEngine}
    described = dict(engine)
    made: Engine = kinds[described.pop("runtime")](**described)
    return made


def import_runtime(runtime: str) -> None:
    """Import what an engine needs, so that the memory of libraries is told from the model's."""
    if runtime == "torch":
        import numaserve_models.network  # noqa: F401
    elif runtime == "onnxruntime":
        import onnxruntime  # noqa: F401


class TorchEngine:
    """The model as shipped, or one of PyTorch's own ways to make it faster. ``threads`` 0 leaves them to PyTorch."""

    def __init__(self, variant: str, network: dict[str, Any], threads: int) -> None:
        import torch

        if variant == "ipex":
            _import_ipex()
        if threads:
            torch.set_num_threads(threads)
        from numaserve_models.bench.prepare import load_network

        self._torch = torch
        loaded = load_network(network)
        config = loaded.model.config
        self._attention = str(getattr(config, "_attn_implementation", None))
        self._sdpa = bool(getattr(loaded.model, "_supports_sdpa", False))
        with warnings.catch_warnings():  # torch.ao says it is deprecated: it is what people have
            warnings.simplefilter("ignore")
            self._module = _variant(torch, loaded.shipped or loaded.module, variant)

    def __call__(self, ids: Ids, mask: Ids) -> Array:
        torch = self._torch
        with torch.inference_mode():
            answer: Array = self._module(torch.from_numpy(ids), torch.from_numpy(mask)).float().numpy()
        return answer

    def facts(self) -> dict[str, Any]:
        """Threads and attention as PyTorch has them."""
        facts = {"threads": self._torch.get_num_threads(), "precision": "f32", "attention": self._attention}
        if self._sdpa and self._attention != "sdpa":
            facts["note"] = f"the class supports sdpa attention and runs {self._attention}"
        return facts


def _variant(torch: Any, module: Any, variant: str) -> Any:
    if variant == "compile":
        return torch.compile(module)
    if variant == "int8":
        return torch.ao.quantization.quantize_dynamic(module, {torch.nn.Linear}, dtype=torch.qint8)
    if variant == "ipex":
        return _import_ipex().optimize(module)
    return module


IPEX = "intel_extension_for_pytorch"


def no_ipex(why: str) -> str:
    """The sentence of a rung that has no extension of Intel's to run on."""
    return (
        f"{IPEX} cannot be imported ({why}): each of its releases works with one version of PyTorch, the last with 2.8, and "
        f"PyTorch is {version('torch')} here"
    )


def _import_ipex() -> Any:
    try:
        return importlib.import_module(IPEX)
    except Exception as error:  # it refuses other versions of torch in more than one way
        raise ExportError(no_ipex(str(error).partition("\n")[0])) from error


class OnnxEngine:
    """ONNX Runtime on an ONNX file. ``pooling`` is applied here where the file ends in token vectors."""

    def __init__(self, file: str, threads: int, pooling: str | None = None, normalize: bool = False) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._inputs = {i.name for i in self._session.get_inputs()}
        self._threads, self._pooling, self._normalize = threads, pooling, normalize

    def __call__(self, ids: Ids, mask: Ids) -> Array:
        from numaserve_api.config import Pooling
        from numaserve_models.graph import pool_in_numpy

        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        answer: Array = self._session.run(None, {k: v for k, v in feed.items() if k in self._inputs})[0]
        if self._pooling and answer.ndim == 3:
            answer = pool_in_numpy(answer, mask, Pooling(self._pooling))
        if self._normalize:
            answer = answer / np.linalg.norm(answer, axis=-1, keepdims=True)
        return answer.astype(np.float32)

    def facts(self) -> dict[str, Any]:
        """Threads as asked."""
        return {"threads": self._threads, "precision": "f32"}


class OpenVinoEngine:
    """OpenVINO on an artifact's graph, compiled as numaserve serves it."""

    def __init__(self, graph: str, precision: str, group: int, threads: int) -> None:
        from numaserve_models.running import Runner

        self._graph, self._asked, self._group, self._threads = Path(graph), precision, group, threads
        self._runner = Runner(Path(graph), precision, group, threads)

    def __call__(self, ids: Ids, mask: Ids) -> Array:
        return self._runner(ids, mask)

    def facts(self) -> dict[str, Any]:
        """Threads and precision read back, and the kernels that were chosen."""
        compiled = self._runner.compiled
        precision = str(compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name())
        facts: dict[str, Any] = {
            "threads": int(compiled.get_property("INFERENCE_NUM_THREADS")),
            "precision": precision,
            "dynamicGroup": self._group,
            "execution": self._execution(),
        }
        if precision != self._asked:
            facts["note"] = f"{self._asked} was asked, this CPU executes {precision}"
        return facts

    def _execution(self) -> list[dict[str, Any]]:
        """What runs; of a graph with two forms the first block of each, since the runtime shows only that there are two."""
        from numaserve_serving.backends import BackendSettings, execution_table, look_inside

        settings = BackendSettings(self._threads, "bf16" if self._asked == "bf16" else "f32", self._group)
        tables = look_inside(self._graph, settings) or {"": execution_table(self._runner.compiled)}
        return [
            {
                "operation": f"{form}/{r.operation}" if form else r.operation, "precision": r.precision,
                "primitive": r.primitive, "count": r.count, "heavy": r.heavy,
            }
            for form, table in tables.items() for r in table
        ]  # fmt: skip
