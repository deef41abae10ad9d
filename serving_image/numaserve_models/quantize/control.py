"""Accuracy control: the layers that static quantisation hurts most stay FP32, as few of them as the bound allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import openvino as ov
from openvino import opset13 as op

from numaserve_models.errors import ExportError
from numaserve_models.quantize import forms
from numaserve_models.quantize.bounds import Agreement, Bounds
from numaserve_models.running import pad

RANKING_SAMPLES, RANKING_TOKENS = 16, 512
"""Every layer's values are held at once while layers are ranked: few texts, none longer."""


class Attempt(Protocol):
    """One try: the graph quantised with some operations kept in FP32, and how near it comes."""

    def __call__(self, kept: Sequence[str]) -> tuple[ov.Model, Agreement]: ...


@dataclass(frozen=True, slots=True)
class Controlled:
    """The graph that was chosen, the operations that stayed FP32 in it, in order of harm, and how near it comes."""

    model: ov.Model
    kept: tuple[str, ...]
    agreement: Agreement


def control(
    attempt: Attempt, rank: Callable[[ov.Model], Sequence[tuple[str, ...]]], bounds: Bounds, limit: int | None
) -> Controlled:
    """Quantise, and keep the fewest of the most harmful layers that meet the bounds. Raises ExportError.

    ``rank`` gives layers by their names, one in each form of the graph. ``limit`` is the most layers to keep; None
    allows half of them.
    """
    model, found = attempt(())
    if found.meets(bounds):
        return Controlled(model, (), found)
    ranked = rank(model)
    most = min(len(ranked), (len(ranked) + 1) // 2 if limit is None else limit)
    tried = {0: Controlled(model, (), found)}

    def holds(count: int) -> bool:
        names = tuple(name for layer in ranked[:count] for name in layer)
        model, found = attempt(names)
        tried[count] = Controlled(model, names, found)
        return tried[count].agreement.meets(bounds)

    count = smallest_prefix(most, holds)
    if count is None:
        kept, best = max(tried.items(), key=lambda t: (t[1].agreement.worst, t[1].agreement.mean))
        raise ExportError(
            f"scheme int8 reaches mean cosine {best.agreement.mean:.4f} and worst {best.agreement.worst:.4f} with "
            f"{kept} of {len(ranked)} layers kept in FP32 (limit {most}), asked are {bounds.mean:g} and "
            f"{bounds.worst:g}: keep more layers, calibrate on texts like yours, lower the bound, or use int8-weights"
        )
    return tried[count]


def smallest_prefix(limit: int, holds: Callable[[int], bool]) -> int | None:
    """The least count from 1 to ``limit`` that holds, found by doubling, then halving; None where the limit does not.

    A test is dear, and keeping more layers is taken never to be worse: with that, the answer is exact.
    """
    low, high = 0, min(1, limit)
    while high > low and not holds(high):
        low, high = high, min(2 * high, limit)
    if high == low:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def rank_layers(exact: ov.Model, quantised: ov.Model, encoded: Sequence[Sequence[int]]) -> list[tuple[str, ...]]:
    """The layers, the one that adds most quantisation noise first, each by its name in every form of the graph."""
    harm: dict[str, float] = {}
    for one, other in zip(forms.parts(exact), forms.parts(quantised), strict=True):
        harm |= _harm(one, other, encoded)
    return forms.groups(exact, harm)


def _harm(exact: ov.Model, quantised: ov.Model, encoded: Sequence[Sequence[int]]) -> dict[str, float]:
    """Noise that each layer adds: the relative squared error of its result less that of what it was given.

    Errors of successive layers add up in squares. Both graphs run once on a few texts.
    """
    layers = [node.get_friendly_name() for node in exact.get_ordered_ops() if _is_layer(node)]
    inputs = {name: _given(exact, name) for name in layers}
    taps = sorted({*layers, *(given for names in inputs.values() for given in names)})
    # Few and spread over the lengths, since the texts come from every bucket.
    chosen = sorted(encoded, key=len)[:: max(1, -(-len(encoded) // RANKING_SAMPLES))]
    noise = _noise(exact, quantised, taps, [ids[:RANKING_TOKENS] for ids in chosen])
    return {name: noise[name] - sum(noise[given] for given in inputs[name]) for name in layers}


def _is_layer(node: ov.Node) -> bool:
    if node.get_type_name() != "Gather":
        return node.get_type_name() in forms.LAYERS
    table = node.input_value(0)  # an embedding, not a look-up of shapes
    return table.get_node().get_type_name() == "Constant" and bool(table.get_element_type().is_real())


def _given(model: ov.Model, name: str) -> list[str]:
    node = next(n for n in model.get_ops() if n.get_friendly_name() == name)
    sources = [node.input_value(port).get_node() for port in range(node.get_input_size())]
    return [s.get_friendly_name() for s in sources if s.get_type_name() not in ("Constant", "Convert")]


def _noise(
    exact: ov.Model, quantised: ov.Model, taps: Sequence[str], encoded: Sequence[Sequence[int]]
) -> dict[str, float]:
    """Relative squared error of each named operation's first result."""
    present = {node.get_friendly_name() for node in quantised.get_ops()}
    shared = [name for name in taps if name in present]
    left, right = _tapped(exact, shared), _tapped(quantised, shared)
    error, power = np.zeros(len(shared)), np.full(len(shared), 1e-30)
    for ids in encoded:
        tokens, mask = pad([ids])
        feed = {"input_ids": tokens, "attention_mask": mask}
        wanted, got = left(feed), right(feed)
        for index in range(len(shared)):
            reference = np.asarray(wanted[index], dtype=np.float64)
            error[index] += float(((np.asarray(got[index]) - reference) ** 2).sum())
            power[index] += float((reference**2).sum())
    return {**dict.fromkeys(taps, 0.0), **dict(zip(shared, (error / power).tolist(), strict=True))}


def _tapped(model: ov.Model, names: Sequence[str]) -> ov.CompiledModel:
    """The graph compiled with the named operations' first results in place of its own output."""
    copy = model.clone()
    nodes = {node.get_friendly_name(): node for node in copy.get_ops()}
    # Results of their own: one of these operations may be the graph's answer already.
    tapped = ov.Model([op.result(nodes[name].output(0)) for name in names], copy.get_parameters(), "tapped")
    return ov.Core().compile_model(tapped, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
