"""Graphs in each scheme, made by NNCF."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any

import openvino as ov

from numaserve_models.errors import ExportError, said
from numaserve_models.quantize import forms
from numaserve_models.quantize.masks import shielded
from numaserve_models.running import pad

# NNCF reports its use to a server unless this is set before it is imported.
os.environ.setdefault("NNCF_CI", "1")

GROUPS = (128, 64, 32)
"""Group sizes of int4 weights, the largest that divides every width is taken."""

NEVER_STATIC = ("NormalizeL2",)
"""Normalising one vector a text costs nothing, and one scale for the vectors of all texts ruined the shortest ones."""


def compress_int8(model: ov.Model) -> ov.Model:
    """int8 weights, asymmetric, a scale a channel; needs no data. The model given may be changed."""
    with _nncf() as nncf:
        mode = nncf.CompressWeightsMode.INT8_ASYM
        return forms.each(model, lambda form: _done(nncf.compress_weights(form, mode=mode)))


def compress_int4(model: ov.Model, ratio: float) -> ov.Model:
    """int4 weights for a ``ratio`` of the layers, embeddings and the last layer int8. The model given may be changed."""
    group = group_size(model)
    with _nncf() as nncf:
        options = {"mode": nncf.CompressWeightsMode.INT4_ASYM, "group_size": group, "ratio": ratio}
        return forms.each(model, lambda form: _done(nncf.compress_weights(form, **options)))


def quantise_static(
    model: ov.Model, encoded: Sequence[Sequence[int]], kept: Sequence[str], smooth: bool = True
) -> ov.Model:
    """int8 weights and activations with scales from the texts given; operations named in ``kept`` stay FP32.

    ``smooth`` moves the range of outlier channels into the weights first (SmoothQuant). Each form of a graph is
    calibrated on all texts: either runs at any length.
    """
    with _nncf() as nncf:
        extra = {} if smooth else {"smooth_quant_alphas": nncf.AdvancedSmoothQuantParameters(matmul=-1)}
        options = {
            "subset_size": len(encoded),
            "model_type": nncf.ModelType.TRANSFORMER,
            # Not validated: a form has only its own of the names.
            "ignored_scope": nncf.IgnoredScope(names=list(kept), types=list(NEVER_STATIC), validate=False),
            "advanced_parameters": nncf.AdvancedQuantizationParameters(**extra),
        }
        return forms.each(
            model, lambda form: _done(nncf.quantize(shielded(form), nncf.Dataset(list(encoded), _feed), **options))
        )


def group_size(model: ov.Model) -> int:
    """The largest group that divides the input width of every weight; -1, a scale a channel, where none does."""
    nodes = [node for form in forms.parts(model) for node in form.get_ordered_ops()]
    widths = {width for node in nodes if (width := _input_width(node))}
    return next((group for group in GROUPS if all(width % group == 0 for width in widths)), -1)


def _input_width(node: ov.Node) -> int:
    """Channels a weighted MatMul sums over; 0 for everything else."""
    if node.get_type_name() != "MatMul" or node.input_value(1).get_node().get_type_name() != "Constant":
        return 0
    shape = list(node.input_value(1).get_shape())
    return int(shape[-1] if node.get_attributes()["transpose_b"] else shape[-2])


def _feed(ids: Sequence[int]) -> dict[str, Any]:
    tokens, mask = pad([ids])
    return {"input_ids": tokens, "attention_mask": mask}


def _done(model: Any) -> ov.Model:
    result: ov.Model = model
    return result


@contextlib.contextmanager
def _nncf() -> Iterator[Any]:
    """NNCF without its tables and bars on standard output, its failures in one sentence."""
    import nncf

    nncf.set_log_level(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield nncf
    except (RuntimeError, ValueError, nncf.ValidationError) as error:
        raise ExportError(f"the graph cannot be quantised: {said(error)}") from error
