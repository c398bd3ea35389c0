"""A window between two norms: its kernels on every layout, and on numbers far from 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.compiled import available, use_threads
from pycaffe_fire.backend.kernels import depthwise as kernels
from pycaffe_fire.backend.kernels.norms import KINDS, MEAN, PRODUCT, SCALE, SHIFT, SUM, VARIANCE

pytestmark = pytest.mark.skipif(not available(), reason="there is no other form of these kernels")

EPS, SLOPE = 1e-5, 0.25


class Op:
    """The arrays of one op in blocks of b channels, of values that lie in plain order."""

    def __init__(self, x: Any, taps: Any, b: int, stride: int) -> None:
        num, channels, self.height, self.columns = x.shape
        self.rows, self.across = ((size - 1) // stride + 1 for size in x.shape[2:])
        self.b, self.stride = b, stride
        self.x, self.dx = self._blocks(x), self._blocks(np.zeros_like(x))
        self.z, self.y = (
            self._blocks(np.zeros((num, channels, self.rows, self.across))) for _ in range(2)
        )
        flat = taps.reshape(channels // b, b, kernels.TAPS).transpose(0, 2, 1)
        self.w = np.ascontiguousarray(flat, np.float32).reshape(-1)
        self.dw, self.drafts = np.empty_like(self.w), np.empty(num * self.w.size, np.float32)
        self.tables = np.zeros((2, KINDS, channels), np.float32)
        self.tables[:, SCALE], self.tables[:, SHIFT] = 1.5, 0.5
        self.rules = np.array([[EPS, 1, SLOPE]] * 2)
        self.room = np.empty((3, num * channels), np.float32)
        use_threads(1)

    def _blocks(self, values: Any) -> Any:
        num, channels, height, columns = values.shape
        shape = (num, channels // self.b, self.b, height * columns)
        return np.ascontiguousarray(values.reshape(shape).transpose(0, 1, 3, 2), np.float32)

    def plain(self, blocks: Any, height: int, columns: int) -> Any:
        num, outer, _, b = blocks.shape
        return blocks.transpose(0, 1, 3, 2).reshape(num, outer * b, height, columns)

    def forward(self) -> None:
        kernels.forward(
            self.x, self.w, self.z, self.y, self.tables, self.rules, self.room, self.height,
            self.columns, self.stride, False,
        )  # fmt: skip

    def backward(self, dy: Any) -> None:
        kernels.backward(
            self.x, self.w, self.z, self._blocks(dy), self.dx, self.dw, self.drafts, self.tables,
            self.rules, self.room, self.height, self.columns, self.stride, False, False,
        )  # fmt: skip

    @property
    def results(self) -> list[Any]:
        dw = self.dw.reshape(-1, kernels.TAPS, self.b).transpose(0, 2, 1).reshape(-1, kernels.TAPS)
        small = [self.plain(each, self.rows, self.across) for each in (self.z, self.y)]
        return [*small, self.plain(self.dx, self.height, self.columns), dw, self.tables]


def reference(x: Any, taps: Any, stride: int, dy: Any) -> list[Any]:
    """The same in float64, by definition: z, y, dx and the gradient of the taps."""
    height, columns = x.shape[2:]

    def normal(values: Any) -> tuple[Any, Any]:
        mean = values.mean((0, 2, 3), keepdims=True)
        deviation = np.sqrt(values.var((0, 2, 3), keepdims=True) + EPS)
        return (values - mean) / deviation, deviation

    def before_norm(gradient: Any, hat: Any, deviation: Any) -> Any:
        mean, along = (g.mean((0, 2, 3), keepdims=True) for g in (gradient, gradient * hat))
        return 1.5 * (gradient - mean - hat * along) / deviation

    hat, deviation = normal(x)
    inner = 1.5 * hat + 0.5
    padded = np.pad(np.where(inner > 0, inner, SLOPE * inner), ((0, 0), (0, 0), (1, 1), (1, 1)))
    places = [
        (np.s_[:, :, i : i + height : stride, j : j + columns : stride], taps[:, 3 * i + j])
        for i in range(3) for j in range(3)
    ]  # fmt: skip
    z = sum(padded[place] * tap[:, None, None] for place, tap in places)
    z_hat, z_deviation = normal(z)
    outer = 1.5 * z_hat + 0.5
    g = np.where(outer > 0, dy, SLOPE * dy)
    dz = before_norm(g, z_hat, z_deviation)
    dw = np.stack([(padded[place] * dz).sum((0, 2, 3)) for place, _ in places], 1)
    found = np.zeros_like(padded)
    for place, tap in places:
        found[place] += dz * tap[:, None, None]
    found = found[:, :, 1:-1, 1:-1]
    dx = before_norm(np.where(inner > 0, found, SLOPE * found), hat, deviation)
    return [z, np.where(outer > 0, outer, SLOPE * outer), dx, dw]


def values(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


SIZES = [(1, 1), (1, 2), (2, 1), (1, 7), (7, 1), (2, 2), (3, 4), (4, 3), (5, 5), (6, 8), (9, 12)]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_layout_gives_what_the_definition_says(size: tuple[int, int], stride: int) -> None:
    x, taps = values(6, 16, *size), values(16, kernels.TAPS)
    found = []
    for b in (8, 16):
        op = Op(x, taps, b, stride)
        dy = values(6, 16, op.rows, op.across)
        op.forward()
        op.backward(dy)
        found.append(op.results)
    for narrow, wide in zip(*found, strict=True):
        assert np.array_equal(narrow, wide)
    for mine, exact in zip(found[0], reference(x, taps, stride, dy), strict=False):
        assert np.allclose(mine, exact, rtol=1e-3, atol=1e-4 * np.abs(exact).max())


@pytest.mark.parametrize("middle", ["alike", "apart"])
def test_statistics_of_channels_far_from_0(middle: str) -> None:
    """Also where the pixels in the middle of samples are far from all others."""
    x = (values(3, 8, 40, 50) + 1000).astype(np.float32)
    if middle == "apart":
        x[:, :, 20, :5] = 900
    op = Op(x, values(8, kernels.TAPS), 8, 1)
    op.forward()
    exact = x.astype(np.float64)
    assert np.allclose(op.tables[0, MEAN], exact.mean((0, 2, 3)), rtol=1e-7)
    assert np.allclose(op.tables[0, VARIANCE], exact.var((0, 2, 3)), rtol=3e-5)
    made = op.plain(op.z, 40, 50).astype(np.float64)
    assert np.allclose(op.tables[1, VARIANCE], made.var((0, 2, 3)), rtol=3e-5)


def test_a_constant_channel_has_no_variance() -> None:
    op = Op(np.full((3, 8, 9, 9), 0.1), values(8, kernels.TAPS), 8, 1)
    op.forward()
    assert not op.tables[0, VARIANCE].any()


def test_sums_of_gradients() -> None:
    x, taps, dy = values(4, 8, 6, 7), values(8, kernels.TAPS), values(4, 8, 6, 7)
    op = Op(x, taps, 8, 1)
    op.forward()
    op.backward(dy)
    outer = op.plain(op.y, 6, 7) > 0
    g = np.where(outer, dy, SLOPE * dy)
    off = op.plain(op.z, 6, 7) - op.tables[1, MEAN][:, None, None]
    assert np.allclose(op.tables[1, SUM], g.sum((0, 2, 3)), atol=1e-4)
    assert np.allclose(op.tables[1, PRODUCT], (g * off).sum((0, 2, 3)), rtol=1e-4, atol=1e-3)
