"""From an ONNX or OpenVINO encoder to a graph that answers vectors: pooling and normalisation inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as op

from numaserve_api.config import Pooling, Scheme
from numaserve_models.errors import ExportError

IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
_COMPRESSED = (Scheme.INT8_WEIGHTS,)


def read(source: Path) -> ov.Model:
    """Read an ONNX file or an OpenVINO IR. Raises ExportError."""
    try:
        return ov.Core().read_model(str(source))
    except RuntimeError as error:
        raise ExportError(
            f"{source.name} cannot be read as ONNX or OpenVINO IR: {str(error).splitlines()[0]}"
        ) from error


def hidden_states(model: ov.Model, source: str) -> ov.Output:
    """The graph's token vectors [batch, length, width]: its one output of rank three."""
    found = [o for o in model.outputs if o.get_partial_shape().rank.is_static and len(o.get_partial_shape()) == 3]
    if len(found) != 1:
        shapes = ", ".join(f"{o.get_any_name()} {o.get_partial_shape()}" for o in model.outputs)
        raise ExportError(
            f"{source} has {len(found)} outputs of shape [batch, length, width], one is needed; its outputs are {shapes}"
        )
    return found[0]


def embedding_graph(source: Path, pooling: Pooling, normalize: bool) -> ov.Model:
    """A graph from input_ids and attention_mask, int64 [batch, length], to `embedding`, float32 [batch, width]."""
    model = read(source)
    inputs = {i.get_any_name(): i for i in model.inputs}
    unknown = sorted(set(inputs) - {IDS, MASK, TYPES})
    if unknown or IDS not in inputs or MASK not in inputs:
        raise ExportError(
            f"{source.name} has inputs {sorted(inputs)}: {IDS} and {MASK} are needed, {TYPES} is understood, nothing else is"
        )
    tokens = hidden_states(model, source.name).get_node().input_value(0)
    if TYPES in inputs:
        _fold_types(inputs[TYPES], inputs[IDS])
    pooled = _pool(tokens, inputs[MASK], pooling)
    if normalize:
        pooled = op.normalize_l2(pooled, np.array([1], dtype=np.int64), 1e-12, "max").output(0)
    result = op.result(pooled)
    result.output(0).get_tensor().set_names({"embedding"})
    parameters = [inputs[name].get_node() for name in (IDS, MASK)]
    graph = ov.Model([result], parameters, "numaserve")
    graph.reshape({name: ov.PartialShape([-1, -1]) for name in (IDS, MASK)})
    graph.validate_nodes_and_infer_types()
    return graph


def _fold_types(types: ov.Output, ids: ov.Output) -> None:
    # Single texts are segment 0 throughout: one input less to feed.
    zeros = op.multiply(ids, np.array(0, dtype=np.int64))
    for target in types.get_target_inputs():
        target.replace_source_output(zeros.output(0))


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


def layers(model: ov.Model) -> list[str]:
    """What each attention layer attends to. ONNX encoders read here compute dense attention in every softmax."""
    softmaxes = [n for n in model.get_ordered_ops() if n.get_type_name() in ("Softmax", "ScaledDotProductAttention")]
    return ["full"] * len(softmaxes)


def quantise(model: ov.Model, scheme: Scheme) -> ov.Model:
    """The graph in a weight scheme. bf16 keeps FP32 weights here; the server computes in bf16."""
    if scheme in (Scheme.NONE, Scheme.BF16):
        return model
    if scheme not in _COMPRESSED:
        raise ExportError(f"scheme {scheme} is not supported yet: use none, bf16 or int8-weights")
    import nncf

    nncf.set_log_level(40)
    compressed: ov.Model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_ASYM)
    return compressed


def save(model: ov.Model, folder: Path) -> None:
    """Write openvino_model.xml and .bin, full precision kept, equal bytes for an equal graph."""
    for number, node in enumerate(model.get_ordered_ops()):
        # The runtime numbers nodes over the whole process: the same graph made twice would have two digests.
        if node.get_type_name() != "Parameter":
            node.set_friendly_name(f"{node.get_type_name()}_{number}")
    ov.save_model(model, str(folder / "openvino_model.xml"), compress_to_fp16=False)
