"""OpenVINO on the CPU: threads and precision set explicitly and read back."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import queue
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino.properties as props
import openvino.properties.hint as hints

from numaserve_serving.backends.base import BackendError, BackendFacts, BackendSettings, Execution, Ids, Vectors
from numaserve_serving.backends.forms import PROBE_TOKENS, prefixes

logger = logging.getLogger(__name__)
_HEAVY = {
    "FullyConnected",
    "MatMul",
    "ScaledDotProductAttention",
    "ScaledDotProductAttentionWithKVCache",
    "MHA",
    "QKVProjection",
    "LLMMLP",
}
"""Operations whose kernels decide speed and rounding; the rest is bookkeeping."""
_SILENT = {"Const", "Input", "Output", "Parameter", "Result"}
"""Nodes that execute nothing."""


class OpenVinoBackend:
    """A model compiled for the CPUs this process may use."""

    def __init__(self, graph: Path | ov.Model, settings: BackendSettings) -> None:
        self._graph, self._settings = graph, settings
        self._forms: dict[str, list[Execution]] = {}
        with _own_affinity():
            self._model, self._cached = _compile(graph, settings)
        self._inputs = {i.get_any_name() for i in self._model.inputs}
        unknown = self._inputs - {"input_ids", "attention_mask"}
        if unknown:
            raise BackendError(
                f"the graph has inputs this server does not feed: {', '.join(sorted(unknown))}; export it again"
            )
        if len(self._model.outputs) != 1:
            raise BackendError(f"the graph has {len(self._model.outputs)} outputs, one is expected; export it again")
        self._requests: queue.SimpleQueue[ov.InferRequest] = queue.SimpleQueue()
        self._requests.put(self._model.create_infer_request())

    @property
    def facts(self) -> BackendFacts:
        # Read on demand: kernels are chosen at the first inference, not when the model is compiled.
        return self._read_back()

    def infer(self, ids: Ids, mask: Ids) -> Vectors:
        request = self._requests.get()
        try:
            feed = {"input_ids": ids, "attention_mask": mask}
            outputs = request.infer({k: v for k, v in feed.items() if k in self._inputs}, share_inputs=True)
            return np.array(outputs[0], dtype=np.float32, copy=True)
        except RuntimeError as error:
            raise BackendError(f"inference of a batch of shape {list(ids.shape)} failed: {error}") from error
        finally:
            self._requests.put(request)

    def executed(self) -> dict[str, list[Execution]]:
        """What is executed, by form: ``whole``, or ``dense`` and ``local`` where the graph has two; after an inference."""
        table = execution_table(self._model)
        if not any(row.operation == "If" for row in table):
            return {"whole": table}
        if not self._forms:
            self._forms = look_inside(self._graph, self._settings)
        return self._forms or {"whole": table}

    def _read_back(self) -> BackendFacts:
        threads = int(self._model.get_property(props.inference_num_threads()))
        precision = _type_name(self._model.get_property(hints.inference_precision()))
        return BackendFacts(
            threads=threads,
            precision=precision,
            fingerprint=_fingerprint(self.executed(), precision, self._settings.dynamic_group),
            version=ov.get_version(),
            cached=self._cached,
        )


def _type_name(value: Any) -> str:
    name = str(value.get_type_name()) if hasattr(value, "get_type_name") else str(value)
    return name.strip("<>' ").replace("Type: ", "").strip("'")


def _compile(graph: Path | ov.Model, settings: BackendSettings) -> tuple[ov.CompiledModel, bool]:
    if settings.cache is not None:
        try:
            return _compile_once(graph, settings, settings.cache), True
        except (RuntimeError, OSError) as error:
            # A full, read-only or corrupt cache must never keep a model from being served.
            logger.warning("compiling with the cache failed, compiling without it: %s", error)
            empty_cache(settings.cache)
    try:
        return _compile_once(graph, settings, None), False
    except RuntimeError as error:
        raise BackendError(f"the runtime cannot compile the graph: {error}") from error


def _compile_once(graph: Path | ov.Model, settings: BackendSettings, cache: Path | None) -> ov.CompiledModel:
    options = _options(settings)
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
        options[props.cache_dir()] = str(cache)
    return ov.Core().compile_model(str(graph) if isinstance(graph, Path) else graph, "CPU", options)


def _options(settings: BackendSettings) -> dict[Any, Any]:
    return {
        props.inference_num_threads(): settings.threads,
        props.hint.num_requests(): 1,
        props.streams.num(): 1,
        hints.inference_precision(): ov.Type.bf16 if settings.precision == "bf16" else ov.Type.f32,
        hints.enable_cpu_pinning(): settings.pin,
        hints.dynamic_quantization_group_size(): settings.dynamic_group,
    }


def look_inside(graph: Path | ov.Model, settings: BackendSettings) -> dict[str, list[Execution]]:
    """Tables of the beginnings of both forms by their name; nothing for a graph of one form, and nothing where they cannot be run, which must not keep a model from serving."""
    ids = np.ones((1, PROBE_TOKENS), dtype=np.int64)
    tables = {}
    try:
        model = ov.Core().read_model(str(graph)) if isinstance(graph, Path) else graph
        for name, form in prefixes(model).items():
            with _own_affinity():  # the cores belong to the model that serves: nothing is pinned here
                compiled = ov.Core().compile_model(form, "CPU", _options(replace(settings, pin=False)))
            compiled({i.get_any_name(): ids for i in compiled.inputs})
            tables[name] = execution_table(compiled)
    except RuntimeError as error:
        logger.warning("the forms of the graph cannot be looked into: %s", error)
        return {}
    return tables


@contextlib.contextmanager
def _own_affinity() -> Iterator[None]:
    """The runtime may narrow the calling thread's mask while it pins (openvino#24826)."""
    before = os.sched_getaffinity(0)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def empty_cache(folder: Path) -> None:
    """Forget every compiled graph."""
    for path in folder.glob("*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def execution_table(model: ov.CompiledModel) -> list[Execution]:
    """What the compiled model executes, heavy operations first; call it after an inference, which chooses the kernels."""
    found: Counter[tuple[str, str, str]] = Counter()
    for node in model.get_runtime_model().get_ops():
        info = node.get_rt_info()
        kind = _info(info, "layerType")
        if kind not in _SILENT:
            found[kind, _info(info, "runtimePrecision"), _info(info, "primitiveType")] += 1
    rows = [Execution(*key, count, key[0] in _HEAVY) for key, count in found.items()]
    return sorted(rows, key=lambda row: (not row.heavy, -row.count, row.operation, row.precision, row.primitive))


def _fingerprint(tables: dict[str, list[Execution]], precision: str, group: int) -> str:
    """Heavy operations by kernel and runtime precision, and a digest over all of them.

    Kernel names carry the ISA, so two pods of one revision on different CPUs differ here. Of two forms, each has its part.
    """
    parts = [part for form, table in tables.items() for part in _kernels("" if form == "whole" else f"{form} ", table)]
    text = ",".join([precision, f"group={group}", *parts])
    return f"{precision}/{hashlib.sha256(text.encode()).hexdigest()[:8]} ({'; '.join(parts)[:200]})"


def _kernels(form: str, table: list[Execution]) -> list[str]:
    kernels: Counter[str] = Counter()
    for row in table:
        if row.heavy:
            kernels[f"{row.operation}:{row.primitive}"] += row.count
    return [f"{form}{count}x{name}" for name, count in sorted(kernels.items())]


def _info(info: Any, key: str) -> str:
    try:
        value = info[key]
    except KeyError:
        return "?"
    return str(value.astype(str) if hasattr(value, "astype") else value)
