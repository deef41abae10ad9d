"""The arithmetic of the gate: properties that hold for any vectors."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from numaserve_api.conditions import Reason
from numaserve_api.resource import CosineGate
from numaserve_operator.gates.compare import (
    bound_on_bad_share,
    check_health,
    check_noise,
    check_shape,
    cosines,
    gate_values,
    statistics,
)

Array = npt.NDArray[np.float32]
FLOATS = st.one_of(st.floats(0.015625, 10, width=32), st.floats(-10, -0.015625, width=32))


@st.composite
def vectors(draw: st.DrawFn) -> Array:
    """Vectors with a direction, [n, d]."""
    shape = draw(st.tuples(st.integers(1, 20), st.integers(2, 8)))
    return draw(hnp.arrays(np.float32, shape, elements=FLOATS))


@given(vectors())
def test_identical_vectors_pass_with_cosine_one(a: Array) -> None:
    found = statistics(cosines(a, a))
    assert found.minimum > 0.999999
    assert check_shape(a, a) is None
    assert all(v.passed for v in gate_values(CosineGate(), found, None))


@given(vectors(), st.floats(0.1, 10))
def test_scaling_leaves_the_cosine(a: Array, factor: float) -> None:
    assert np.allclose(cosines(a, (a * factor).astype(np.float32)), 1, atol=1e-5)


@given(vectors(), st.randoms())
def test_order_does_not_matter_to_the_statistics(a: Array, rng: object) -> None:
    b = np.roll(a, 1, axis=1)
    order = np.random.default_rng(1).permutation(len(a))
    one, two = statistics(cosines(a, b)), statistics(cosines(a[order], b[order]))
    assert math.isclose(one.minimum, two.minimum, abs_tol=1e-9)
    assert math.isclose(one.mean, two.mean, abs_tol=1e-9)


@given(vectors(), st.data())
def test_one_nan_anywhere_never_passes(a: Array, data: st.DataObject) -> None:
    bad = a.copy()
    bad[data.draw(st.integers(0, len(a) - 1)), data.draw(st.integers(0, a.shape[1] - 1))] = np.nan
    finding = check_shape(bad, a)
    assert finding
    assert finding.reason is Reason.NOT_FINITE
    values = gate_values(CosineGate(min=-1, p1=-1, mean=-1), statistics(cosines(bad, a)), None)
    assert not any(v.passed for v in values)


@given(vectors(), st.data())
def test_the_smallest_cosine_bounds_percentile_and_mean(a: Array, data: st.DataObject) -> None:
    b = data.draw(hnp.arrays(np.float32, a.shape, elements=FLOATS))
    found = statistics(cosines(a, b))
    assert found.minimum <= found.p1 <= 1
    assert found.minimum <= found.mean + 1e-12


def test_a_zero_vector_another_dimension_and_a_lost_normalisation_are_shape_faults() -> None:
    a = np.eye(3, 4, dtype=np.float32)
    zero = a.copy()
    zero[1] = 0
    for candidate in (zero, np.eye(3, 5, dtype=np.float32), np.eye(2, 4, dtype=np.float32), a * 1.2):
        finding = check_shape(candidate.astype(np.float32), a)
        assert finding
        assert finding.reason is Reason.SHAPE_MISMATCH
    assert check_shape((a * 1.02).astype(np.float32), a) is None
    assert check_health(a) is None


def test_a_threshold_inside_the_noise_judges_nobody() -> None:
    a = np.eye(4, 4, dtype=np.float32)
    b = (a + 0.05).astype(np.float32)
    floor = statistics(cosines(a, b))
    assert check_noise(CosineGate(min=0.5, p1=0.6, mean=0.7), floor) is None
    finding = check_noise(CosineGate(min=0.999, p1=0.9995, mean=0.9999), floor)
    assert finding
    assert finding.reason is Reason.BELOW_NOISE_FLOOR


def test_two_hundred_and_ninety_nine_samples_bound_one_percent() -> None:
    assert bound_on_bad_share(299) <= 0.01 < bound_on_bad_share(298)
    assert bound_on_bad_share(1) == pytest.approx(0.95)
