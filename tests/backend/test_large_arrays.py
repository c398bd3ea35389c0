"""Kernels on arrays that are written past the caches, and on those that are as large but do not
begin with a line of the cache; norms also in every way of sharing blocks among threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.compiled import available, use_threads
from pycaffe_fire.backend.instructions import LARGE
from pycaffe_fire.backend.kernels import batch_norm, joined
from pycaffe_fire.backend.kernels.norms import KINDS, MEAN, PRODUCT, SCALE, SHIFT, SUM, VARIANCE
from pycaffe_fire.backend.kernels.sweeps import WHOLE
from pycaffe_fire.backend.tensor import aligned
from tests.random_numbers import RNG

pytestmark = pytest.mark.skipif(not available(), reason="there is no other form of these kernels")

EPS, NOTHING = 1e-5, np.empty((0, 0, 0, 0), np.float32)
NUM, OUTER, PIXELS = 4, 5, -(-LARGE // (4 * 5 * 2 * WHOLE)) + 3
SMALL = (3, 5, 7, 2 * WHOLE)
SHAPES = pytest.mark.parametrize(
    ("shape", "shift"),
    [(SMALL, 0), ((NUM, OUTER, PIXELS, 2 * WHOLE), 0), ((NUM, OUTER, PIXELS, 2 * WHOLE), 3)],
    ids=["small", "large", "large, between lines"],
)


def array(shape: tuple[int, ...], shift: int, fill: bool = True) -> Any:
    count = int(np.prod(shape))
    made = aligned(count + shift, np.dtype(np.float32))[shift:].reshape(shape)
    made[...] = RNG.standard_normal(shape, np.float32) if fill else np.nan
    return made


class Norm:
    """What kernels want to know of one, by its own statistics, with a ReLU."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        num, outer, _, b = shape
        channels = outer * b
        self.tables = np.zeros((1, KINDS, channels), np.float32)
        self.tables[0, SCALE], self.tables[0, SHIFT] = RNG.standard_normal((2, channels))
        self.arrays = (
            self.tables, np.array([[EPS, 1, 0]]), np.empty((3, num * channels), np.float32),
        )  # fmt: skip

    def by_channel(self, kind: int, shape: tuple[int, ...]) -> Any:
        return self.tables[0, kind].reshape(1, shape[1], 1, shape[3]).astype(np.float64)


def normal(x: Any, norm: Norm) -> tuple[Any, Any, Any]:
    """In double precision: without scale and shift, with them, and the deviation."""
    x = x.astype(np.float64)
    deviation = np.sqrt(x.var((0, 2), keepdims=True) + EPS)
    hat = (x - x.mean((0, 2), keepdims=True)) / deviation
    return hat, hat * norm.by_channel(SCALE, x.shape) + norm.by_channel(SHIFT, x.shape), deviation


def input_gradient(g: Any, hat: Any, deviation: Any, norm: Norm) -> Any:
    level, along = (v.mean((0, 2), keepdims=True) for v in (g, g * hat))
    return norm.by_channel(SCALE, g.shape) * (g - level - hat * along) / deviation


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


@SHAPES
@pytest.mark.parametrize("blocks", [0, 1, 2])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_norm(shape: tuple[int, ...], shift: int, blocks: int, threads: int) -> None:
    use_threads(threads)
    x, y, dy, dx = (array(shape, shift, fill) for fill in (True, False, True, False))
    x += 3
    norm = Norm(shape)
    batch_norm.forward(x, NOTHING, y, *norm.arrays, blocks)
    hat, value, deviation = normal(x, norm)
    close(y, np.maximum(value, 0))
    close(norm.by_channel(MEAN, shape), x.mean((0, 2), np.float64, keepdims=True))
    close(norm.by_channel(VARIANCE, shape), x.astype(np.float64).var((0, 2), keepdims=True))

    batch_norm.backward(x, dy, dx, *norm.arrays, blocks)
    g = np.where(y > 0, dy.astype(np.float64), 0)
    close(dx, input_gradient(g, hat, deviation, norm))
    total = norm.by_channel(SUM, shape)
    np.testing.assert_allclose(total, g.sum((0, 2), keepdims=True), rtol=1e-4, atol=1e-2)
    found = norm.by_channel(PRODUCT, shape) / deviation
    np.testing.assert_allclose(found, (g * hat).sum((0, 2), keepdims=True), rtol=1e-4, atol=1e-2)
    expected = dx.copy()
    batch_norm.backward(x, dy, dy, *norm.arrays, blocks)  # in place
    np.testing.assert_array_equal(dy, expected)


@SHAPES
@pytest.mark.parametrize("blocks", [0, 2])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_norm_with_a_sum(shape: tuple[int, ...], shift: int, blocks: int, parts: int) -> None:
    use_threads(2)
    x, addend, one, two = (array(shape, shift) for _ in range(4))
    y, g, dx = (array(shape, shift, fill=False) for _ in range(3))
    norm = Norm(shape)
    batch_norm.forward(x, addend, y, *norm.arrays, blocks)
    hat, value, deviation = normal(x, norm)
    close(y, np.maximum(value + addend, 0))

    other = two if parts == 2 else NOTHING
    batch_norm.sum_backward(x, y, one, other, g, dx, *norm.arrays, blocks)
    total = one + two if parts == 2 else one
    np.testing.assert_array_equal(g, np.where(y > 0, total, 0 * total))
    close(dx, input_gradient(g.astype(np.float64), hat, deviation, norm))


@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize("vectors", [1, joined.PIECE // WHOLE + 5, LARGE // WHOLE])
def test_parts_side_by_side(vectors: int, shift: int) -> None:
    use_threads(2)
    whole = array((3, (vectors + 4) * WHOLE), shift, fill=False)
    place = slice(3 * WHOLE, (vectors + 3) * WHOLE)
    part, values = (array((3, vectors * WHOLE), shift) for _ in range(2))
    joined.put(part, whole, place.start)
    np.testing.assert_array_equal(whole[:, place], part)
    assert np.isnan(np.delete(whole, place, axis=1)).all()

    back = array(part.shape, shift, fill=False)
    joined.take(whole, place.start, back, np.empty((0, 0), np.float32))
    np.testing.assert_array_equal(back, part)
    joined.take(whole, place.start, back, values)
    np.testing.assert_array_equal(back, np.where(values > 0, part, 0))
