"""Quantising a graph of two forms: both bodies, weights once in the file, layers kept in both or in neither."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest

from numaserve_api.config import Scheme
from numaserve_models import branches, graph
from numaserve_models.artifact import open_artifact
from numaserve_models.errors import ExportError
from numaserve_models.quantize import Bounds, QuantizeRequest, forms, quantize
from numaserve_models.quantize.outliers import with_outliers
from numaserve_models.quantize.schemes import compress_int8, group_size, quantise_static
from numaserve_models.running import Runner, cosines, pad
from tests.unit.models.tiny_encoder import MAX_TOKENS, SWITCH, TEXTS, tiny_graph, two_forms, write_tiny

SCHEMES = [Scheme.BF16, Scheme.INT8_WEIGHTS, Scheme.INT8, Scheme.INT4_WEIGHTS]
SHORT = [text for text in TEXTS if len(text.split()) + 2 <= SWITCH]
CALIBRATION = [[1, *range(3, 3 + n), 2] for n in (2, 4, 7)] + [[1, 3, 4, 5, 6, 7, 8, 9, 9, 3, 4, 2]]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An FP32 artifact of two forms; no test changes it."""
    folder = tmp_path_factory.mktemp("forms") / "fp32"
    write_tiny(folder, two_forms())
    return folder


def provenance(folder: Path) -> dict[str, Any]:
    """What the manifest says about the quantisation."""
    found: dict[str, Any] = open_artifact(folder).manifest.provenance["quantization"]
    return found


def size(folder: Path) -> int:
    """Bytes of the weights."""
    return (folder / "openvino_model.bin").stat().st_size


@pytest.mark.parametrize("scheme", SCHEMES)
def test_both_forms_are_quantised_and_their_weights_stand_in_the_file_once(
    source: Path, tmp_path: Path, scheme: Scheme
) -> None:
    write_tiny(tmp_path / "one")
    for name, origin in (("one", tmp_path / "one"), ("two", source)):
        quantize(origin, tmp_path / f"{name}-out", QuantizeRequest(scheme))
    made = graph.read(tmp_path / "two-out" / "openvino_model.xml")
    assert branches.switch_of(made) == SWITCH
    assert size(tmp_path / "two-out") < 1.02 * size(tmp_path / "one-out")
    both = branches.bodies(made)
    assert both is not None
    ids, mask = pad([[1, 3, 4, 5, 6, 2]])
    dense, local = (Runner(form)(ids, mask) for form in both)
    assert cosines(dense, local)[0] > (0.99 if scheme is Scheme.INT8 else 0.99999)


@pytest.mark.parametrize("scheme", [Scheme.INT8, Scheme.INT4_WEIGHTS])
def test_two_forms_give_the_same_digest_again(source: Path, tmp_path: Path, scheme: Scheme) -> None:
    request = QuantizeRequest(scheme)
    assert quantize(source, tmp_path / "one", request) == quantize(source, tmp_path / "two", request)


@pytest.mark.parametrize("change", [compress_int8, lambda model: quantise_static(model, CALIBRATION, [])])
def test_quantised_weights_are_held_once_in_memory(change: Any) -> None:
    both = branches.bodies(change(two_forms()))
    assert both is not None
    dense, local = ({place for place, count in weights(form) if count >= 1024} for form in both)
    assert dense
    assert dense == local


def weights(form: ov.Model) -> list[tuple[int, int]]:
    """Address and bytes of each constant."""
    values = [node.data for node in form.get_ops() if node.get_type_name() == "Constant"]
    return [(value.ctypes.data, value.nbytes) for value in values]


def test_scales_that_differ_by_more_than_rounding_are_left_alone() -> None:
    dense, local = tiny_graph(), tiny_graph(by_blocks=True)
    paired = forms.pairs(dense, local)
    assert len(paired) == 13
    one = quantise_static(dense, CALIBRATION, [])
    other = quantise_static(local, [[1, 3, 2]], [])
    before = Runner(other.clone())(*pad([[1, 4, 5, 6, 7, 8, 9, 3, 2]]))
    forms.share(one, other, paired)
    shared = {place for place, _ in weights(one)} & {place for place, _ in weights(other)}
    assert len(shared) < len(weights(one)) // 2
    after = Runner(other)(*pad([[1, 4, 5, 6, 7, 8, 9, 3, 2]]))
    np.testing.assert_allclose(before, after, atol=0.02)


def test_a_layer_is_kept_in_both_forms(tmp_path: Path) -> None:
    write_tiny(tmp_path / "outliers", with_outliers(two_forms()))
    request = QuantizeRequest(Scheme.INT8, smooth=False, bounds=Bounds(0.98, 0.95))
    quantize(tmp_path / "outliers", tmp_path / "out", request)
    kept = provenance(tmp_path / "out")["keptPrecision"]
    dense = [name for name in kept if name.startswith("dense/")]
    assert 1 <= len(dense) <= 9
    assert len(kept) == 2 * len(dense)
    made = branches.bodies(graph.read(tmp_path / "outliers" / "openvino_model.xml"))
    assert made is not None
    paired = forms.pairs(*made)
    assert {paired[name] for name in dense if name in paired} <= set(kept)


def test_outliers_are_the_same_in_both_forms(source: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "outliers", with_outliers(two_forms()))
    assert size(tmp_path / "outliers") < 1.05 * size(source)
    left, right = (open_artifact(folder).reference() for folder in (source, tmp_path / "outliers"))
    assert left is not None
    assert right is not None
    np.testing.assert_allclose(left, right, atol=1e-5)


def test_the_form_for_long_texts_is_measured_where_no_sample_is_long(tmp_path: Path) -> None:
    write_tiny(tmp_path / "sound", two_forms(), SHORT, lengths=(4, 8))
    quantize(tmp_path / "sound", tmp_path / "out", QuantizeRequest(Scheme.INT8_WEIGHTS))
    assert provenance(tmp_path / "out")["cosine"]["samples"] == len(SHORT) + 8
    broken = branches.combine(tiny_graph(), tiny_graph(seed=12, by_blocks=True), SWITCH)
    write_tiny(tmp_path / "broken", broken, SHORT, lengths=(4, 8))
    with pytest.raises(ExportError, match=r"scheme none answers sample \d+ \('.*'\) with cosine .*0\.\d+ to FP32"):
        quantize(tmp_path / "broken", tmp_path / "other", QuantizeRequest(Scheme.INT8_WEIGHTS))


def test_int4_groups_are_those_of_the_bodies() -> None:
    assert group_size(two_forms()) == group_size(tiny_graph()) == 32
    assert MAX_TOKENS > SWITCH
