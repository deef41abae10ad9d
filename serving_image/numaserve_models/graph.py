"""From an ONNX file or OpenVINO IR to a graph that answers: pooling and normalisation inside."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

from numaserve_api.config import Output, Pooling, Task
from numaserve_models.branches import IDS, MASK
from numaserve_models.digest import digest_file
from numaserve_models.errors import ExportError, said
from numaserve_models.running import Array, Ids

TYPES = "token_type_ids"


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """What a graph without any description is to answer. ``head`` names the output where there are several."""

    task: Task = Task.EMBEDDING
    output: Output = Output.POOLED
    pooling: Pooling = Pooling.MEAN
    normalize: bool = True
    positions: int = 512
    max_tokens: int | None = None
    head: str | None = None
    labels: Sequence[str] = ()
    activation: str | None = None
    separator: int | None = None

    @property
    def pools(self) -> bool:
        """Whether token vectors become one vector here."""
        return self.task is Task.EMBEDDING and self.output is Output.POOLED

    @property
    def rank(self) -> int:
        """Rank of the source's output that is used."""
        by_token = self.task is Task.TOKEN_CLASSIFICATION or self.output is Output.TOKENS
        return 3 if self.pools or by_token else 2


def read(source: Path) -> ov.Model:
    """Read an ONNX file or an OpenVINO IR. Raises ExportError."""
    try:
        return ov.Core().read_model(str(source))
    except RuntimeError as error:
        raise ExportError(f"{source.name} cannot be read as ONNX or OpenVINO IR: {said(error)}") from error


def source_digest(source: Path) -> str:
    """Digest of the source's weights: the ONNX file with its external data, or the IR with its .bin."""
    beside = (
        [source.with_suffix(".bin")] if source.suffix == ".xml" else sorted(source.parent.glob(f"{source.name}*data"))
    )
    files = [source, *(path for path in beside if path.is_file())]
    if len(files) == 1:
        return digest_file(source)
    joined = "\n".join(f"{path.name}={digest_file(path)}" for path in files)
    return "sha256:" + hashlib.sha256(joined.encode()).hexdigest()


def answer_graph(source: Path, request: GraphRequest) -> ov.Model:
    """A graph from input_ids and attention_mask, int64 [batch, length], to one float32 output. Raises ExportError."""
    model = read(source)
    inputs = {i.get_any_name(): i for i in model.inputs}
    unknown = sorted(set(inputs) - {IDS, MASK, TYPES})
    if unknown or IDS not in inputs or MASK not in inputs:
        raise ExportError(
            f"{source.name} has inputs {sorted(inputs)}: {IDS} and {MASK} are needed, {TYPES} is understood, nothing else is"
        )
    answer = _chosen(model, source.name, request).get_node().input_value(0)
    if TYPES in inputs:
        _fold_types(inputs[TYPES], inputs[IDS], inputs[MASK], request.separator)
    if request.pools:
        answer = _pool(answer, inputs[MASK], request.pooling)
    if request.normalize and request.task is Task.EMBEDDING:
        axis = np.array([-1 if not request.pools else 1], dtype=np.int64)
        answer = op.normalize_l2(answer, axis, 1e-12, "max").output(0)
    result = op.result(answer)
    result.output(0).get_tensor().set_names({"answer"})
    parameters = [inputs[name].get_node() for name in (IDS, MASK)]
    graph = ov.Model([result], parameters, "numaserve")
    graph.reshape({name: ov.PartialShape([-1, -1]) for name in (IDS, MASK)})
    graph.validate_nodes_and_infer_types()
    return graph


def _chosen(model: ov.Model, source: str, request: GraphRequest) -> ov.Output:
    """The output that is exported: the one named, or the only one of the rank needed."""
    shapes = ", ".join(f"{'/'.join(sorted(o.get_names()))} {o.get_partial_shape()}" for o in model.outputs)
    if request.head is not None:
        for output in model.outputs:
            if request.head in output.get_names():
                rank = output.get_partial_shape().rank
                if rank.is_static and rank.get_length() != request.rank:
                    raise ExportError(
                        f"output {request.head} of {source} has shape {output.get_partial_shape()}, {request.rank} dimensions are needed "
                        f"for {request.task} with output {request.output}"
                    )
                return output
        raise ExportError(f"{source} has no output {request.head}; its outputs are {shapes}")
    found = [
        o for o in model.outputs if o.get_partial_shape().rank.is_static and len(o.get_partial_shape()) == request.rank
    ]
    if len(found) != 1:
        shape = "[batch, length, width]" if request.rank == 3 else "[batch, labels]"
        raise ExportError(
            f"{source} has {len(found)} outputs of shape {shape}, one is needed: name one with --head; its outputs are {shapes}"
        )
    return found[0]


def has_segments(model: ov.Model) -> bool:
    """Whether the graph tells the segments of a pair apart."""
    return any(i.get_any_name() == TYPES for i in model.inputs)


def _fold_types(types: ov.Output, ids: ov.Output, mask: ov.Output, separator: int | None) -> None:
    """One input less to feed: single texts are segment 0 throughout, a pair's second begins after the first separator."""
    made = op.multiply(ids, np.array(0, dtype=np.int64))
    if separator is not None:
        ends = op.convert(op.equal(ids, np.array(separator, dtype=np.int64)), "i64")
        before = op.subtract(op.cum_sum(ends, np.array(1, dtype=np.int64)), ends)
        made = op.multiply(op.convert(op.greater(before, np.array(0, dtype=np.int64)), "i64"), mask)
    for target in types.get_target_inputs():
        target.replace_source_output(made.output(0))


def segments_of(ids: Ids, mask: Ids, separator: int | None) -> Ids:
    """The same in numpy: it checks the graph's."""
    if separator is None:
        return np.zeros_like(ids)
    ends = (ids == separator).astype(np.int64)
    made: Ids = ((np.cumsum(ends, axis=1) - ends) > 0).astype(np.int64) * mask
    return made


def _pool(tokens: ov.Output, mask: ov.Output, pooling: Pooling) -> ov.Output:
    """Token vectors [b, n, d] and mask [b, n] to [b, d]; padding never takes part."""
    if pooling is Pooling.CLS:
        return op.squeeze(op.slice(tokens, [0], [1], [1], [1]), np.array([1], dtype=np.int64)).output(0)
    weights = op.convert(op.unsqueeze(mask, np.array([2], dtype=np.int64)), "f32")
    if pooling is Pooling.MEAN:
        total = op.reduce_sum(op.multiply(tokens, weights), np.array([1], dtype=np.int64), False)
        count = op.reduce_sum(weights, np.array([1], dtype=np.int64), False)
        return op.divide(total, op.maximum(count, np.array(1e-9, dtype=np.float32))).output(0)
    if pooling is Pooling.LAST:
        index = op.subtract(op.reduce_sum(mask, np.array([1], dtype=np.int64), False), np.array(1, dtype=np.int64))
        return op.gather(tokens, index, np.array(1, dtype=np.int64), 1).output(0)
    raise ExportError("pooling must be cls, mean or last: this source does not say which its authors used")


def vocabulary(graph: ov.Model) -> int | None:
    """Rows of the table that token ids are looked up in; None where it cannot be told."""
    seen = list(next(i for i in graph.inputs if i.get_any_name() == IDS).get_target_inputs())
    for target in seen:
        node = target.get_node()
        if node.get_type_name() == "Gather" and target.get_index() == 1:
            shape = node.input_value(0).get_partial_shape()
            return int(shape[0].get_length()) if shape.rank.is_static and shape[0].is_static else None
        if node.get_type_name() == "Convert":
            seen.extend(node.output(0).get_target_inputs())
    return None


class SourceRunner:
    """The source's own answers: ONNX by ONNX Runtime, an IR by OpenVINO; pooled and normalised in numpy."""

    def __init__(self, source: Path, request: GraphRequest) -> None:
        self._request = request
        chosen = _chosen(read(source), source.name, request)
        self._names = chosen.get_names()
        self._onnx: Any = None
        if source.suffix == ".onnx":
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            self._onnx = onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
        else:
            settings = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
            self._model = ov.Core().compile_model(read(source), "CPU", settings)

    def __call__(self, ids: Ids, mask: Ids) -> Array:
        """The answer of one batch, float32 [batch, …]."""
        request, answer = self._request, self._raw(ids, mask)
        if request.pools:
            answer = pool_in_numpy(answer, mask, request.pooling)
        if request.normalize and request.task is Task.EMBEDDING:
            answer = answer / np.linalg.norm(answer, axis=-1, keepdims=True)
        result: Array = answer.astype(np.float32)
        return result

    def _raw(self, ids: Ids, mask: Ids) -> Array:
        feed = {IDS: ids, MASK: mask, TYPES: segments_of(ids, mask, self._request.separator)}
        if self._onnx is not None:
            known = {i.name for i in self._onnx.get_inputs()}
            name = next(o.name for o in self._onnx.get_outputs() if o.name in self._names)
            return np.asarray(self._onnx.run([name], {k: v for k, v in feed.items() if k in known})[0])
        known = {i.get_any_name() for i in self._model.inputs}
        index = next(i for i, o in enumerate(self._model.outputs) if o.get_names() & self._names)
        return np.asarray(self._model({k: v for k, v in feed.items() if k in known})[index])


def pool_in_numpy(hidden: Array, mask: Ids, pooling: Pooling) -> Array:
    """Token vectors [b, n, d] to [b, d], written a second time on purpose: it checks the graph's."""
    if pooling is Pooling.CLS:
        pooled: Array = hidden[:, 0]
    elif pooling is Pooling.LAST:
        pooled = hidden[np.arange(len(hidden)), mask.sum(axis=1) - 1]
    else:
        pooled = (hidden * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    return pooled


def save(model: ov.Model, folder: Path) -> None:
    """Write openvino_model.xml and .bin, full precision kept, equal bytes for an equal graph."""
    _rename(model)
    try:
        ov.save_model(model, str(folder / "openvino_model.xml"), compress_to_fp16=False)
    except RuntimeError as error:
        raise ExportError(f"the graph cannot be written ({said(error)}): is the disk full?") from error


def _rename(model: ov.Model, prefix: str = "") -> None:
    for number, node in enumerate(model.get_ordered_ops()):
        # The runtime numbers nodes over the whole process: the same graph made twice would have two digests.
        if node.get_type_name() != "Parameter":
            node.set_friendly_name(f"{prefix}{node.get_type_name()}_{number}")
        if node.get_type_name() == "If":
            _rename(node.get_then_body(), "local/")
            _rename(node.get_else_body(), "dense/")
