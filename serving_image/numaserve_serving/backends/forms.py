"""Looking inside a graph of two forms, dense and block-local under one `If`: the runtime's table shows only the `If`.

The first operations of each form, compiled alone with the same properties, execute what the form executes: layers
repeat. Of a model with 90 million parameters both are
compiled and run in less than a second, and their memory is given back.
"""

from __future__ import annotations

import openvino as ov
from openvino import opset13 as op

PRODUCTS = 8
"""Matrix products of a prefix: the first block of a transformer."""
PROBE_TOKENS = 64
"""Length that a prefix is run at: its kernels are chosen at the first inference."""
_PRODUCTS = ("MatMul", "ScaledDotProductAttention")


def prefixes(graph: ov.Model) -> dict[str, ov.Model]:
    """The beginning of each form by its name, dense first; empty where the graph has one form."""
    choice = next((node for node in graph.get_ops() if node.get_type_name() == "If"), None)
    if choice is None:
        return {}
    return {"dense": prefix(choice.get_else_body()), "local": prefix(choice.get_then_body())}


def prefix(body: ov.Model) -> ov.Model:
    """A copy of a body up to its eighth matrix product, or the whole where it has none."""
    form = body.clone()
    for parameter in form.get_parameters():  # a body keeps node names, not tensor names
        parameter.output(0).get_tensor().set_names({parameter.get_friendly_name()})
    products = [node for node in form.get_ordered_ops() if node.get_type_name() in _PRODUCTS][:PRODUCTS]
    if not products:
        return form
    return ov.Model([op.result(products[-1].output(0))], form.get_parameters(), "prefix")
