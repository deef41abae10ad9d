"""What each layer truly computes, read off the graph that is exported: not off what a config claims.

Every attention's mask (or, where the graph spells the softmax out, its probabilities) is evaluated at a
length beyond the widest declared window, and the distances that are seen are counted.
Words: ``full``, ``causal``, ``sliding:W`` (W tokens beside itself), ``causal-sliding:W``, with ``global+``
where leading tokens are seen by all, and ``conv:K`` for a convolution of width K along the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import openvino as ov

from numaserve_models.errors import ExportError

_HIDDEN = -1e4
"""Additive masks below this hide; every implementation uses far smaller numbers."""
Seen = npt.NDArray[np.bool_]


def probe_layers(graph: ov.Model, length: int) -> list[str]:
    """What every attention and sequence convolution of a graph computes, in order, probed at ``length`` tokens."""
    copy = graph.clone()
    kinds: list[str | None] = []
    taps: list[ov.Output] = []
    for node in copy.get_ordered_ops():
        kind = node.get_type_name()
        if kind == "ScaledDotProductAttention":
            _tap_attention(node, kinds, taps)
        elif kind == "Softmax" and node.output(0).get_partial_shape().rank.get_length() >= 3 and _square(node):
            kinds.append(None)
            taps.append(node.output(0))
        elif kind in ("GroupConvolution", "Convolution"):
            width = int(node.input_value(1).get_partial_shape()[-1].get_length())
            if width > 1:
                kinds.append(f"conv:{width}")
    answers = iter(_evaluate(copy, taps, length))
    return [kind if kind is not None else describe(next(answers)) for kind in kinds]


def _tap_attention(node: ov.Node, kinds: list[str | None], taps: list[ov.Output]) -> None:
    if not _square(node):
        return
    if node.get_attributes().get("causal"):
        kinds.append("causal")
    elif node.get_input_size() < 4 or _is_scalar(node.input_value(3)):
        kinds.append("full")
    else:
        kinds.append(None)
        taps.append(node.input_value(3))


def _is_scalar(output: ov.Output) -> bool:
    rank = output.get_partial_shape().rank
    return bool(rank.is_static and rank.get_length() == 0)


def _square(node: ov.Node) -> bool:
    """Not attention of one row only: what a global token sees is computed apart."""
    shape = node.output(0).get_partial_shape()
    return bool(shape[shape.rank.get_length() - 2].get_max_length() != 1)


def _evaluate(graph: ov.Model, taps: Sequence[ov.Output], length: int) -> list[Seen]:
    if not taps:
        return []
    from openvino import opset13 as op

    probe = ov.Model([op.result(tap) for tap in taps], graph.get_parameters(), "probe")
    compiled = ov.Core().compile_model(probe, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    ids = np.arange(length, dtype=np.int64)[None] % 5 + 2
    answers = compiled({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    return [_seen(np.asarray(answers[i]), tap, length) for i, tap in enumerate(taps)]


def _seen(values: npt.NDArray[np.float32], tap: ov.Output, length: int) -> Seen:
    """Which key each query sees in any head, bool [length, length]."""
    limit = 0 if tap.get_node().get_type_name() == "Softmax" else _HIDDEN
    allowed: Seen = np.greater(values, np.float32(limit)).astype(np.bool_)
    if values.dtype == np.bool_:
        allowed = values.astype(np.bool_)
    flat: Seen = np.asarray(allowed.reshape(-1, *allowed.shape[-2:]).any(axis=0))
    return np.broadcast_to(flat, (length, length)) if flat.shape[0] in (1, length) else flat


def describe(seen: Seen) -> str:
    """The manifest's word for a matrix of which key each query sees, bool [n, n]. Raises ExportError."""
    count = len(seen)
    leading = 0
    # Columns only: what a global token sees itself may be computed apart. The first token of a causal layer is none.
    while seen[np.triu_indices(count, 1)].any() and leading < count - 1 and bool(seen[:, leading].all()):
        leading += 1
    if leading >= count - 1:
        return "full"
    inner = seen[leading:, leading:]
    left, right = _reach(inner)
    size = len(inner)
    prefix = "global+" if leading else ""
    if right == 0:
        return prefix + ("causal" if left >= size - 1 else f"causal-sliding:{left}")
    if left != right:
        raise ExportError(
            f"a layer sees {left} tokens to the left and {right} to the right: no window known to this exporter"
        )
    return prefix + ("full" if left >= size - 1 else f"sliding:{left + right}")


def _reach(inner: Seen) -> tuple[int, int]:
    """Farthest token seen on each side; every nearer one must be seen too."""
    queries, keys = np.nonzero(inner)
    left, right = int((queries - keys).max()), int((keys - queries).max())
    distance = np.subtract.outer(np.arange(len(inner)), np.arange(len(inner)))
    expected = (distance <= left) & (distance >= -right)
    if not np.array_equal(inner, expected):
        raise ExportError(
            "a layer's attention is neither full nor a sliding window: it cannot be named, so it is not exported"
        )
    return left, right


def check_declared(probed: Sequence[str], declared: Sequence[str] | None, length: int) -> list[str]:
    """Refuse a graph whose layers do not compute what the model's config says; what they compute, as it is told.

    A window that reaches beyond ``length`` cannot be told from full attention there, and is taken at its word.
    """
    if declared is None:
        return list(probed)
    if len(probed) == len(declared) and all(
        p in (d, _within(d, length)) for p, d in zip(probed, declared, strict=True)
    ):
        return list(declared)
    if len(probed) != len(declared):
        raise ExportError(
            f"the graph has {len(probed)} mixing layers, config.json describes {len(declared)}: {_short(probed)}"
        )
    index = next(i for i, (p, d) in enumerate(zip(probed, declared, strict=True)) if p not in (d, _within(d, length)))
    raise ExportError(
        f"layer {index + 1} computes {probed[index]} (probed at {length} tokens), config.json says {declared[index]}: "
        "the configured window is not what this model would run, so it was not exported"
    )


def _within(word: str, length: int) -> str:
    """How a declared layer looks among ``length`` tokens."""
    kind, _, width = word.rpartition(":")
    if "sliding" not in kind:
        return word
    causal = "causal" in kind
    side = int(width) if causal else int(width) // 2
    prefix = "global+" if kind.startswith("global+") else ""
    return (f"{prefix}causal" if causal else "full") if side >= length - 1 else word


def _short(layers: Sequence[str]) -> str:
    return ", ".join(layers[:4]) + (" …" if len(layers) > 4 else "")


def probe_length(declared: Sequence[str] | None, positions: int) -> int:
    """A length beyond every declared window, within the model's positions."""
    widths = [int(word.rpartition(":")[2]) for word in declared or [] if "sliding" in word]
    return min(positions, max([64, *(w + 40 for w in widths)]))
