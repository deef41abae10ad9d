"""Quantising a graph of two forms: each body with the same texts, its weights and scales the same in both.

The bodies compute the same activations but for rounding, and static scales follow the last bit of them: left alone,
two sets of int8 weights would stand in the file, in memory and in the CPU's caches. So the block-local form takes the
constants of the dense one wherever they are the same to within rounding.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import openvino as ov

from numaserve_models import branches

LAYERS = ("MatMul", "Convolution", "GroupConvolution", "Gather")
_FOLLOWED = ("Multiply", "Subtract", "Convert", "FakeQuantize", "Reshape", "Transpose")
"""What quantisation puts between a layer and its weights or activations."""
_NEAR, _STEPS = 0.01, 2
"""How far a scale (relative to the largest) and an integer weight may differ and still be the same but for rounding."""


def parts(graph: ov.Model) -> tuple[ov.Model, ...]:
    """The bodies of a graph of two forms, dense first, or the graph itself."""
    return branches.bodies(graph) or (graph,)


def each(graph: ov.Model, change: Callable[[ov.Model], ov.Model]) -> ov.Model:
    """Apply a change to every form; constants of a layer that both forms have are held once."""
    both = branches.bodies(graph)
    if both is None:
        return change(graph)
    paired = pairs(*both)
    done: list[ov.Model] = []

    def step(form: ov.Model) -> ov.Model:
        made = change(form)
        if done:
            share(done[0], made, paired)
        done.append(made)
        return made

    return branches.each(graph, step)


def pairs(dense: ov.Model, local: ov.Model) -> dict[str, str]:
    """Names of layers of the dense form to those of the block-local form with the same weights, in order."""
    waiting: dict[bytes, list[str]] = defaultdict(list)
    for name, digest in _weighted(local):
        waiting[digest].append(name)
    return {name: waiting[digest].pop(0) for name, digest in _weighted(dense) if waiting[digest]}


def _weighted(model: ov.Model) -> Iterator[tuple[str, bytes]]:
    seen: dict[int, bytes] = {}
    for node in model.get_ordered_ops():
        port = 0 if node.get_type_name() == "Gather" else 1
        if node.get_type_name() not in LAYERS or node.input_value(port).get_node().get_type_name() != "Constant":
            continue
        values = node.input_value(port).get_node().data
        if not np.issubdtype(values.dtype, np.floating):
            continue
        place = values.ctypes.data
        if place not in seen:
            seen[place] = hashlib.blake2b(np.ascontiguousarray(values).data).digest()
        yield node.get_friendly_name(), seen[place] + str(values.shape).encode()


def share(dense: ov.Model, local: ov.Model, paired: Mapping[str, str]) -> None:
    """Let layers of ``local`` read the constants of their pair in ``dense``, where they differ by rounding at most."""
    left, right = ({node.get_friendly_name(): node for node in model.get_ops()} for model in (dense, local))
    for one, other in paired.items():
        if one not in left or other not in right:
            continue
        found = list(_constants(left[one], right[other]))
        if all(_near(source, reader) for source, reader in found):
            for source, reader in found:
                reader.replace_source_output(source)


def _constants(left: ov.Node, right: ov.Node) -> Iterator[tuple[ov.Output, ov.Input]]:
    """Constants behind two operations, walked side by side as long as the graphs are alike: the left one, who reads the right."""
    for port in range(min(left.get_input_size(), right.get_input_size())):
        one, other = left.input_value(port), right.input_value(port)
        kind = one.get_node().get_type_name()
        if kind != other.get_node().get_type_name():
            continue
        if kind == "Constant":
            yield one, right.input(port)
        elif kind in _FOLLOWED:
            yield from _constants(one.get_node(), other.get_node())


def _near(source: ov.Output, reader: ov.Input) -> bool:
    other = reader.get_source_output()
    if source.get_element_type() != other.get_element_type() or source.get_shape() != other.get_shape():
        return False
    one, two = source.get_node().data, other.get_node().data
    if one.ctypes.data == two.ctypes.data or np.array_equal(one, two):
        return True
    if source.get_element_type().bitwidth < 8:
        return False  # two values stand in a byte
    if np.issubdtype(one.dtype, np.integer):
        return int(np.abs(one.astype(np.int64) - two.astype(np.int64)).max()) <= _STEPS
    return float(np.abs(one - two).max()) <= _NEAR * float(np.abs(one).max())


def groups(graph: ov.Model, harm: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Layers, the most harmful first, each by its names in every form: both keep it in FP32, or neither."""
    both = branches.bodies(graph)
    found = [(name,) for name in harm] if both is None else _matched(*both, harm)
    return sorted(found, key=lambda names: -sum(harm[name] for name in names))


def _matched(dense: ov.Model, local: ov.Model, harm: Mapping[str, float]) -> list[tuple[str, ...]]:
    paired = pairs(dense, local)
    loose = [
        [n for node in form.get_ordered_ops() if (n := node.get_friendly_name()) in harm and n not in known]
        for form, known in ((dense, set(paired)), (local, set(paired.values())))
    ]
    if len(loose[0]) == len(loose[1]):  # products of activations, in the order of the layers
        paired |= dict(zip(*loose, strict=True))
        return list(paired.items())
    return [*paired.items(), *((name,) for name in (*loose[0], *loose[1]))]
