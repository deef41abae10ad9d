"""From a PyTorch module to an OpenVINO graph, dense below a length and block-local above it.

Both forms stand in one graph under one `If`, so that they share their weights on disk and in memory;
the condition is the length of the batch, and below the switch nothing is slower than the dense form alone.
"""

from __future__ import annotations

import warnings

import numpy as np
import openvino as ov
import torch
from openvino import opset13 as op

from numaserve_models.errors import ExportError
from numaserve_models.network import Network

IDS, MASK = "input_ids", "attention_mask"
_EXAMPLE = (2, 48)


def trace(network: Network, by_blocks: bool = False) -> ov.Model:
    """The network as a graph from input_ids and attention_mask, int64 [batch, length], to one output.

    Raises ExportError where the module does not trace.
    """
    ids = torch.randint(5, min(1000, int(network.config.vocab_size)), _EXAMPLE, generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, _EXAMPLE[1] // 2 :] = 0
    with network.exporting(by_blocks) as module, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            graph = ov.convert_model(module, example_input={IDS: ids, MASK: mask})
        except Exception as error:  # the frontend raises many kinds
            first = str(error).strip().splitlines()[0]
            raise ExportError(f"{network.architecture.name} cannot be traced to a graph: {first}") from error
    return named(graph, "answer")


def named(graph: ov.Model, output: str) -> ov.Model:
    """Give inputs and output their names and make both dimensions of the inputs free."""
    if len(graph.outputs) != 1:
        raise ExportError(f"the graph has {len(graph.outputs)} outputs, one is needed: name the head to export")
    for source, name in zip(graph.inputs, (IDS, MASK), strict=True):
        source.get_tensor().set_names({name})
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
    return next(p for p in body.get_parameters() if wanted in p.output(0).get_tensor().get_names())


def bodies(graph: ov.Model) -> tuple[ov.Model, ov.Model] | None:
    """The dense and the block-local body of a combined graph; None where it is one graph throughout."""
    choice = next((node for node in graph.get_ops() if node.get_type_name() == "If"), None)
    if choice is None:
        return None
    return choice.get_else_body(), choice.get_then_body()


def switch_of(graph: ov.Model) -> int | None:
    """Length in tokens above which the block-local form runs; None where there is one form."""
    choice = next((node for node in graph.get_ops() if node.get_type_name() == "If"), None)
    if choice is None:
        return None
    compared = choice.input_value(0).get_node()
    return int(compared.input_value(1).get_node().get_data())
