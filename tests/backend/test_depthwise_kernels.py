"""A depthwise convolution between two norms: its kernels against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.cpu import library
from pycaffe_fire.backend.cpu.depthwise import TAPS, WindowBackward, WindowForward
from pycaffe_fire.errors import BackendError

from .norm_arrays import EPS, norm_arrays

SLOPE = 0.25
needs_library = pytest.mark.skipif(
    not library.available(), reason="the CPU kernels are not compiled"
)


class Op:
    """The arrays of one op in blocks of b channels, of values in plain order."""

    def __init__(
        self, x: Any, taps: Any, b: int, stride: int, threads: int = 1, together: int = 1
    ) -> None:
        num, channels, self.height, self.columns = x.shape
        self.rows, self.across = ((size - 1) // stride + 1 for size in x.shape[2:])
        self.b = b
        self.x, self.dx = self._blocks(x), self._blocks(np.full_like(x, np.nan))
        self.z, self.y = (
            self._blocks(np.full((num, channels, self.rows, self.across), np.nan)) for _ in range(2)
        )
        flat = taps.reshape(channels // b, b, TAPS).transpose(0, 2, 1)
        self.w = np.ascontiguousarray(flat, np.float32).reshape(-1)
        self.dw = np.full_like(self.w, np.nan)
        self.arrays = norm_arrays(2, channels, num, SLOPE)
        self.arrays["scale"][...], self.arrays["shift"][...] = 1.5, 0.5
        self.fields = {
            **self.arrays, "threads": threads, "blocks": channels // b, "block": b,
            "together": together, "x": self.x, "w": self.w, "samples": num, "height": self.height,
            "width": self.columns, "stride": stride, "z": self.z,
        }  # fmt: skip

    def _blocks(self, values: Any) -> Any:
        num, channels, height, columns = values.shape
        shape = (num, channels // self.b, self.b, height * columns)
        return np.ascontiguousarray(values.reshape(shape).transpose(0, 1, 3, 2), np.float32)

    def plain(self, blocks: Any, height: int, columns: int) -> Any:
        num, outer, _, b = blocks.shape
        return blocks.transpose(0, 1, 3, 2).reshape(num, outer * b, height, columns)

    def forward(self, **fields: Any) -> None:
        WindowForward(**{**self.fields, "y": self.y, **fields}).run()

    def backward(self, dy: Any, keep: bool = False) -> Any:
        """Returns dy, or dz if it is kept, in plain order."""
        blocks = self._blocks(dy)
        partial = np.full(len(dy) * self.w.size, np.nan, np.float32)
        WindowBackward(
            **self.fields, dy=blocks, dx=self.dx, dw=self.dw, partial_dw=partial, keep=keep
        ).run()
        return self.plain(blocks, self.rows, self.across)

    @property
    def results(self) -> list[Any]:
        dw = self.dw.reshape(-1, TAPS, self.b).transpose(0, 2, 1).reshape(-1, TAPS)
        small = [self.plain(each, self.rows, self.across) for each in (self.z, self.y)]
        return [*small, self.plain(self.dx, self.height, self.columns), dw]


def reference(x: Any, taps: Any, stride: int, dy: Any) -> list[Any]:
    """By definition, in float64: z, y, dx, the gradient of the taps, and dz."""
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
    return [z, np.where(outer > 0, outer, SLOPE * outer), dx, dw, dz]


def values(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape)


SIZES = [(1, 1), (1, 2), (2, 1), (1, 7), (7, 1), (2, 2), (3, 4), (4, 3), (5, 5), (6, 8), (9, 12)]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_every_layout_gives_what_the_definition_says(
    isa: str, size: tuple[int, int], stride: int
) -> None:
    for num in (1, 6):
        x, taps = values(num, 16, *size), values(16, TAPS)
        found = []
        for b in (8, 16):
            op = Op(x, taps, b, stride)
            dy = values(num, 16, op.rows, op.across)
            op.forward()
            found.append([*op.results[:2], op.backward(dy, keep=True), *op.results[2:]])
        for narrow, wide in zip(*found, strict=True):
            np.testing.assert_array_equal(narrow, wide)
        if num * size[0] * size[1] < 4:  # gradients of so few pixels are rounding errors
            continue
        z, y, dz, dx, dw = found[0]
        exact = reference(x, taps, stride, dy)
        for mine, right in zip((z, y, dx, dw, dz), exact, strict=True):
            assert np.allclose(mine, right, rtol=1e-3, atol=1e-4 * max(1, np.abs(right).max()))


@pytest.mark.parametrize("stride", [1, 2])
def test_bits_do_not_depend_on_threads(isa: str, stride: int) -> None:
    """Nor on whether threads take blocks of channels apart."""
    x, taps = values(5, 48, 11, 10), values(48, TAPS)
    for b in (8, 16, 24):
        found = []
        for threads, together in ((1, 1), (2, 0), (3, 1), (3, 0)):
            op = Op(x, taps, b, stride, threads, together)
            op.forward()
            op.backward(values(5, 48, op.rows, op.across))
            names = ("mean", "variance", "sum", "product")
            found.append([*op.results, *(op.arrays[name] for name in names)])
        for other in found[1:]:
            for one, two in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("middle", ["alike", "apart"])
def test_statistics_of_channels_far_from_0(isa: str, middle: str) -> None:
    """Also where the pixels in the middle of samples are far from all others."""
    x = (values(3, 8, 40, 50) + 1000).astype(np.float32)
    if middle == "apart":
        x[:, :, 20, :5] = 900
    op = Op(x, values(8, TAPS), 8, 1)
    op.forward()
    exact = x.astype(np.float64)
    assert np.allclose(op.arrays["mean"][0], exact.mean((0, 2, 3)), rtol=1e-7)
    assert np.allclose(op.arrays["variance"][0], exact.var((0, 2, 3)), rtol=3e-5)
    made = op.plain(op.z, 40, 50).astype(np.float64)
    assert np.allclose(op.arrays["variance"][1], made.var((0, 2, 3)), rtol=3e-5)


def test_given_statistics(isa: str) -> None:
    """Of either norm: the other one takes those of the batch."""
    x, taps, dy = values(4, 16, 6, 7), values(16, TAPS), values(4, 16, 6, 7)
    own = Op(x, taps, 16, 1)
    own.forward()
    for norm in (0, 1):
        op = Op(x, taps, 16, 1)
        op.arrays["own"][norm] = 0
        for name in ("mean", "variance"):
            op.arrays[name][norm] = own.arrays[name][norm]
        op.forward()
        np.testing.assert_array_equal(op.y, own.y)
        op.backward(dy)
        assert not op.arrays["level"][norm].any() and not op.arrays["along"][norm].any()
        assert op.arrays["level"][1 - norm].any() and op.arrays["along"][1 - norm].any()


def test_a_constant_channel_has_no_variance(isa: str) -> None:
    op = Op(np.full((3, 8, 9, 9), 0.1), values(8, TAPS), 8, 1)
    op.forward()
    assert not op.arrays["variance"][0].any()


def test_sums_of_gradients(isa: str) -> None:
    x, taps, dy = values(4, 8, 6, 7), values(8, TAPS), values(4, 8, 6, 7)
    op = Op(x, taps, 8, 1)
    op.forward()
    op.backward(dy)
    g = np.where(op.plain(op.y, 6, 7) > 0, dy, SLOPE * dy)
    off = op.plain(op.z, 6, 7) - op.arrays["mean"][1][:, None, None]
    assert np.allclose(op.arrays["sum"][1], g.sum((0, 2, 3)), atol=1e-4)
    assert np.allclose(op.arrays["product"][1], (g * off).sum((0, 2, 3)), rtol=1e-4, atol=1e-3)


@needs_library
def test_wrong_sizes_are_refused() -> None:
    op = Op(values(2, 8, 5, 5), values(8, TAPS), 8, 2)
    with pytest.raises(BackendError, match="kernel window_forward: y has 143 .* needs 144"):
        op.forward(y=np.zeros(143, np.float32))
    with pytest.raises(BackendError, match="kernel window_forward: mean has 8 .* needs 16"):
        op.forward(mean=np.zeros(8, np.float32))
    with pytest.raises(BackendError, match="kernel window_forward: does not take steps of 3"):
        op.forward(stride=3)
    partial = np.zeros(143, np.float32)
    with pytest.raises(BackendError, match="kernel window_backward: partial_dw has 143 .* 144"):
        WindowBackward(**op.fields, dy=op.y, dx=op.dx, dw=op.dw, partial_dw=partial).run()
