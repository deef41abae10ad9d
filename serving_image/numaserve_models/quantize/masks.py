"""Attention masks kept out of the runtime's low-precision passes.

A mask is (1 - attention_mask) times a huge negative number. In a graph with any FakeQuantize OpenVINO takes that for the
scale of an integer input and moves it behind the addition of the scores, which it divides by the huge number: they
vanish, and every token attends to all others alike (seen with 2026.4, cosines of 0.3 to 0.6 for a model of six layers).
"""

from __future__ import annotations

import numpy as np
import openvino as ov
from openvino import opset13 as op

HUGE = -1e3
"""Factors below this hide positions; nothing else in an encoder multiplies by such a number."""


def shielded(form: ov.Model) -> ov.Model:
    """The graph given, a maximum behind every mask: it changes no value, and no scale is moved through it."""
    for node in form.get_ordered_ops():
        if node.get_type_name() == "Multiply" and (least := _factor(node)) < HUGE:
            readers = list(node.output(0).get_target_inputs())
            kept = op.maximum(node, np.array(least, dtype=np.float32))
            for reader in readers:
                reader.replace_source_output(kept.output(0))
    form.validate_nodes_and_infer_types()
    return form


def _factor(node: ov.Node) -> float:
    """The number that a Multiply of f32 multiplies by; 0 where it is not one number."""
    sides = [node.input_value(port).get_node() for port in (0, 1)]
    constants = [side.data for side in sides if side.get_type_name() == "Constant"]
    if len(constants) != 1 or constants[0].size != 1 or node.get_output_element_type(0) != ov.Type.f32:
        return 0.0
    return float(constants[0].ravel()[0])
