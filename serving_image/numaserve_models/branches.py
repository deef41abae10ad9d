"""Two forms of one graph under one `If`: dense below a length, block-local above it.

They share their weights on disk and in memory, and below the switch nothing is slower than the dense form
alone: an `If` around each layer's attention cost a quarter there, since fusions stop at its border.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import openvino as ov
from openvino import opset13 as op

from numaserve_models.errors import ExportError

IDS, MASK = "input_ids", "attention_mask"


def named(graph: ov.Model, output: str) -> ov.Model:
    """Give inputs and output their names and make both dimensions of the inputs free."""
    if len(graph.outputs) != 1:
        raise ExportError(f"the graph has {len(graph.outputs)} outputs, one is needed: name the head to export")
    for source, name in zip(graph.inputs, (IDS, MASK), strict=True):
        source.get_tensor().set_names({name})
        source.get_node().set_friendly_name(name)
    graph.outputs[0].get_tensor().set_names({output})
    graph.reshape({name: ov.PartialShape([-1, -1]) for name in (IDS, MASK)})
    graph.validate_nodes_and_infer_types()
    return graph


def combine(dense: ov.Model, local: ov.Model, switch: int) -> ov.Model:
    """One graph that runs ``local`` for batches longer than ``switch`` tokens and ``dense`` otherwise."""
    parameters = [op.parameter([-1, -1], np.int64, name=name) for name in (IDS, MASK)]
    for parameter, name in zip(parameters, (IDS, MASK), strict=True):
        parameter.output(0).get_tensor().set_names({name})
    length = op.gather(op.shape_of(parameters[0]), np.int64(1), np.int64(0))
    choice = op.if_op(op.greater(length, np.int64(switch)).output(0))
    choice.set_then_body(local)
    choice.set_else_body(dense)
    for index, parameter in enumerate(parameters):
        choice.set_input(parameter.output(0), _parameter(local, index), _parameter(dense, index))
    result = op.result(choice.set_output(local.get_results()[0], dense.get_results()[0]))
    result.output(0).get_tensor().set_names(dense.outputs[0].get_names())
    return ov.Model([result], parameters, "numaserve")


def _parameter(body: ov.Model, index: int) -> ov.Node:
    wanted = (IDS, MASK)[index]
    return next(p for p in body.get_parameters() if p.get_friendly_name() == wanted)


def bodies(graph: ov.Model) -> tuple[ov.Model, ov.Model] | None:
    """The dense and the block-local body of a combined graph; None where it is one graph throughout."""
    choice = next((node for node in graph.get_ops() if node.get_type_name() == "If"), None)
    if choice is None:
        return None
    forms = []
    for body in (choice.get_else_body(), choice.get_then_body()):
        form = body.clone()
        for parameter in form.get_parameters():  # a saved body keeps node names, not tensor names
            parameter.output(0).get_tensor().set_names({parameter.get_friendly_name()})
        form.outputs[0].get_tensor().set_names({"answer"})
        forms.append(form)
    return forms[0], forms[1]


def switch_of(graph: ov.Model) -> int | None:
    """Length in tokens above which the block-local form runs; None where there is one form."""
    choice = next((node for node in graph.get_ops() if node.get_type_name() == "If"), None)
    if choice is None:
        return None
    compared = choice.input_value(0).get_node()
    return int(compared.input_value(1).get_node().get_data())


def each(graph: ov.Model, change: Callable[[ov.Model], ov.Model]) -> ov.Model:
    """Apply a change to every form of a graph."""
    forms, switch = bodies(graph), switch_of(graph)
    if forms is None or switch is None:
        return change(graph)
    dense, local = (change(form) for form in forms)
    return combine(dense, local, switch)
