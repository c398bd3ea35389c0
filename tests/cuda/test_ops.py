"""What only the CUDA backend does; its ops are tried in tests/backend with those of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.base import Draw
from pycaffe_fire.backend.numpy import NumPyBackend
from tests.backend.op_cases import RNG


@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 7), 1), ((2, 5, 3, 2), 1), ((2, 3, 4), -1), ((4,), 0), ((0, 3), 1)]
)
def test_softmax(cuda: Any, shape: tuple[int, ...], axis: int) -> None:
    x = np.float32(30 * RNG.standard_normal(shape))
    got = cuda.softmax(cuda.xp.asarray(x), axis).get()
    np.testing.assert_allclose(got, NumPyBackend().softmax(x, axis), rtol=2e-6, atol=1e-9)


def test_sums(cuda: Any) -> None:
    values = np.float32(RNG.standard_normal(200_001))
    device = cuda.xp.asarray(values)
    want = float((values.astype(np.float64) ** 2).sum())
    assert cuda.sum_of_squares(device) == pytest.approx(want, rel=1e-12)
    cuda.accumulate(device, cuda.xp.asarray(values))
    np.testing.assert_array_equal(device.get(), 2 * values)


def test_draws_are_those_of_the_cpu(cuda: Any) -> None:
    draw = Draw(2**63 + 12345, 2**40 + 7, 2**35 + 1)
    want = NumPyBackend().uniform(draw, 3, 1001)
    np.testing.assert_array_equal(cuda.uniform(draw, 3, 1001).get(), want)


EDGES = [0.0, -0.0, 1.0, 65504, 65519.9, 65520, 1e30, np.inf, -np.inf, np.nan, 6e-8, 2.9e-8, 3e-8]
EDGES += [6.1e-5, 6.097e-5, -1e-5, 2049, 2051, 0.1, 3.4e38, 1 + 2**-11, 1 + 3 * 2**-11]


def test_float16_rounds_as_numpy_does(cuda: Any) -> None:
    values = np.array([*EDGES, *RNG.standard_normal(5000) * 100], np.float32)
    packed = cuda.xp.empty(values.size, np.float16)
    cuda.kernels["narrow", "float16"](values.size, cuda.xp.asarray(values), 0.5, packed)
    with np.errstate(over="ignore"):
        want = (values * np.float32(0.5)).astype(np.float16)
    np.testing.assert_array_equal(packed.get(), want)
    back = cuda.xp.empty(values.size, np.float32)
    cuda.kernels["widen", "float16"](values.size, packed, 2.0, back)
    np.testing.assert_array_equal(back.get(), want.astype(np.float32) * 2)


def test_bfloat16_keeps_the_upper_half(cuda: Any) -> None:
    values = np.array([*EDGES, *RNG.standard_normal(5000) * 100], np.float32)
    packed = cuda.converted(cuda.xp.asarray(values), "bfloat16")
    got = cuda.converted(packed, "float32").get()
    real = np.isfinite(values) & (np.abs(values) < 3e38) & (np.abs(values) > 1e-37)
    assert (np.abs(got[real] - values[real]) <= np.abs(values[real]) * 2**-8).all()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(values))
    exact = np.array([1.0, -2.5, 0.0, np.inf], np.float32)
    again = cuda.converted(cuda.converted(cuda.xp.asarray(exact), "bfloat16"), "float32")
    np.testing.assert_array_equal(again.get(), exact)
