"""What only the CUDA backend does; its ops are tried in tests/backend with those of the CPU."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.cuda.launch import KINDS
from pycaffe_fire.backend.numpy import NumPyBackend
from pycaffe_fire.backend.plans import Draw
from tests.random_numbers import RNG


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
    for per_sample in (1001, 1002, 1003, 1004):
        want = NumPyBackend().uniform(draw, 3, per_sample)
        np.testing.assert_array_equal(cuda.uniform(draw, 3, per_sample).get(), want)


def placed(cuda: Any, values: Any, kind: str, first: int) -> Any:
    """Values on the device, so many elements after a border of 16 bytes."""
    memory = cuda.xp.zeros(first + values.size, KINDS[kind])
    if kind == "float32":
        memory[first:].set(values)
    else:
        cuda.convert(cuda.xp.asarray(values), memory[first:])
    return memory[first:]


def floats(cuda: Any, array: Any) -> Any:
    return cuda.converted(array, "float32").get()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("per_sample", [24, 20, 23, 3])
def test_dropout_anywhere_in_memory(cuda: Any, kind: str, per_sample: int) -> None:
    """The same mask in runs of 16 bytes and one by one, forward and in place."""
    draw, samples = Draw(2**63 + 5, 2**40 + 7, 2**35 + 1), 5
    kept = NumPyBackend().uniform(draw, samples, per_sample).reshape(-1) >= np.float32(0.3)
    values = np.arange(1, kept.size + 1, dtype=np.float32)  # exact in every kind
    for x_first, y_first in ((0, 0), (1, 0), (0, 3), (2, 2)):
        x = placed(cuda, values, kind, x_first)
        for y in (placed(cuda, 0 * values, kind, y_first), x):
            cuda.kernels["dropout", kind](
                x.size, x, per_sample, draw.key, draw.step, draw.first_sample, 0.3, 2.0, y
            )
            np.testing.assert_array_equal(floats(cuda, y), np.where(kept, 2 * values, 0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("extents", "halves"),
    [((6, 1, 4, 4), (2, 0, 0, 0)), ((6, 1, 3, 5), (2, 0, 0, 0)), ((3, 2, 4, 4), (0, 1, 1, 1))],
    ids=["across", "across, odd", "within"],
)
def test_lrn_anywhere_in_memory(
    cuda: Any, kind: str, extents: tuple[int, ...], halves: tuple[int, ...]
) -> None:
    """The same bits in runs of 16 bytes and one by one; agreement with the CPU is tried in
    tests/backend."""
    box = cuda.xp.asarray(np.array([*extents, *halves], np.int32))
    x, dy = (np.float32(RNG.standard_normal(2 * prod(extents))) for _ in range(2))
    found = []
    for first in (0, 1, 2):
        arrays = [placed(cuda, values, kind, first) for values in (x, dy, 0 * x, 0 * x)]
        scale, ratio = (placed(cuda, 0 * x, "float32", first) for _ in range(2))
        n, (given, gradient, y, dx) = x.size, arrays
        cuda.kernels["lrn", kind](n, given, box, 0.1, 0.75, 1.5, scale, y)
        cuda.kernels["lrn_ratio", kind](n, given, gradient, scale, 0.75, ratio)
        cuda.kernels["lrn_backward", kind](n, given, gradient, scale, ratio, box, 0.1, 0.75, dx)
        found.append([floats(cuda, array) for array in (y, scale, ratio, dx)])
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, same)
    assert all(np.isfinite(values).all() and values.any() for values in found[0])


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
