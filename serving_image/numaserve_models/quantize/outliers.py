"""The outlier variant: the same function in FP32, with a few channels that carry large activations.

Trained large models have such channels and random weights do not; quantisation suffers from them. A norm's gain is
multiplied on some channels and the weights that read these channels are divided, so that only the numbers on the way
change.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import openvino as ov
from openvino import opset13 as op

from numaserve_models.errors import ExportError
from numaserve_models.quantize import forms

GAIN = 50.0


def with_outliers(model: ov.Model, channels: int = 4, gain: float = GAIN, seed: int = 7) -> ov.Model:
    """A copy of an FP32 graph in which each norm's result carries ``gain`` on ``channels`` channels into the MatMuls.

    The channels follow from the weights, so that both forms of a graph get the same ones. Where a norm's result goes elsewhere too (the residual of BERT), that branch keeps its values: the MatMuls read a
    norm of their own. Raises ExportError where no norm is followed by a MatMul.
    """
    return forms.each(model, lambda form: _changed(form, channels, gain, seed))


def _changed(model: ov.Model, channels: int, gain: float, seed: int) -> ov.Model:
    changed = model.clone()
    found = 0
    for norm in list(changed.get_ordered_ops()):
        readers = _weighted_readers(norm)
        width = _gain_width(norm)
        if readers and width:
            found += 1
            scale = np.ones(width, dtype=np.float32)
            rng = np.random.default_rng([seed, min(_checksum(reader) for reader in readers)])
            scale[rng.choice(width, size=min(channels, width), replace=False)] = gain
            _insert(norm, readers, scale)
    if not found:
        raise ExportError("the graph has no norm whose result goes into a MatMul: no outliers can be put into it")
    changed.validate_nodes_and_infer_types()
    return changed


def _checksum(reader: ov.Input) -> int:
    return zlib.crc32(np.ascontiguousarray(reader.get_node().input_value(1).get_node().data).data)


def _insert(norm: ov.Node, readers: Sequence[ov.Input], scale: np.ndarray) -> None:
    source = _rescaled(norm, scale)
    for reader in readers:
        matmul = reader.get_node()
        weights = matmul.input_value(1).get_node()
        values = np.array(weights.get_data(), dtype=np.float32)
        values /= scale if matmul.get_attributes()["transpose_b"] else scale[:, np.newaxis]
        matmul.input(1).replace_source_output(op.constant(values).output(0))
        reader.replace_source_output(source)


def _rescaled(norm: ov.Node, scale: np.ndarray) -> ov.Output:
    """The norm's last operations once more, its gain (and bias) multiplied."""
    if norm.get_type_name() == "Add":
        (inner, _), bias = _split(norm), _split(norm)[1]
        return op.add(_rescaled(inner.get_node(), scale), bias * scale).output(0)
    before, gain = _split(norm)
    return op.multiply(before, gain * scale).output(0)


def _gain_width(node: ov.Node) -> int:
    """Channels of a norm that ends here: x·gain, or x·gain + bias, with constants of one axis; 0 where none does."""
    if node.get_type_name() not in ("Add", "Multiply") or not _has_constant(node):
        return 0
    before, values = _split(node)
    if values.size < 2 or values.size != values.shape[-1]:
        return 0
    if node.get_type_name() == "Add":
        inner = before.get_node()
        return values.size if inner.get_type_name() == "Multiply" and _gain_width(inner) == values.size else 0
    return int(values.size)


def _has_constant(node: ov.Node) -> bool:
    kinds = [node.input_value(port).get_node().get_type_name() for port in (0, 1)]
    return kinds.count("Constant") == 1 and node.get_output_element_type(0) == ov.Type.f32


def _split(node: ov.Node) -> tuple[ov.Output, np.ndarray]:
    """The computed input and the constant of an operation that has one of each."""
    sides = [node.input_value(port) for port in (0, 1)]
    constant = next(side for side in sides if side.get_node().get_type_name() == "Constant")
    other = next(side for side in sides if side.get_node().get_type_name() != "Constant")
    return other, np.array(constant.get_node().get_data(), dtype=np.float32)


def _weighted_readers(node: ov.Node) -> list[ov.Input]:
    """Inputs of MatMuls that multiply the node's result by constant weights of rank two."""
    if node.get_output_size() != 1:
        return []
    return [
        target
        for target in node.output(0).get_target_inputs()
        if target.get_node().get_type_name() == "MatMul"
        and target.get_index() == 0
        and target.get_node().input_value(1).get_node().get_type_name() == "Constant"
        and len(target.get_node().input_value(1).get_shape()) == 2
    ]
