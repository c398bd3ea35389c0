"""Kernels on layouts N [C/b] S [b] against NumPy, on every instruction set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import random
from pycaffe_fire.backend.cpu.channelwise import (
    PReLUBackward,
    PReLUForward,
    ScaleShiftBackward,
    ScaleShiftForward,
)
from pycaffe_fire.backend.cpu.dropout import DropoutKernel
from pycaffe_fire.backend.cpu.grid import Grid, GridKernel
from pycaffe_fire.backend.cpu.lrn import Lrn
from pycaffe_fire.backend.cpu.softmax import SoftmaxBackward, SoftmaxForward
from pycaffe_fire.errors import BackendError

Array = Any

# (samples, channels, height, width), and the channels of a block; 0: all of them.
SHAPES = [
    ((1, 1, 1, 1), 1), ((2, 5, 1, 1), 1), ((1, 7, 3, 5), 1), ((2, 19, 9, 9), 1),
    ((1, 3, 40, 41), 1), ((2, 16, 3, 3), 8), ((1, 19, 5, 7), 8), ((2, 40, 1, 1), 8),
    ((3, 35, 2, 3), 16),
    ((2, 96, 7, 7), 16), ((1, 300, 1, 1), 16), ((2, 3, 6, 5), 0), ((2, 21, 4, 3), 0),
    ((1, 64, 3, 3), 0), ((2, 200, 3, 2), 0), ((1, 1000, 1, 1), 0), ((3, 13, 2, 5), 4),
]  # fmt: skip
GRIDS = pytest.mark.parametrize(("shape", "block"), SHAPES, ids=str)
THREADS = (1, 2, 3)


def grid_of(shape: tuple[int, ...], block: int) -> Grid:
    samples, channels, height, width = shape
    inner = block or channels
    return samples, -(-channels // inner), height * width, inner


def blocked(values: Array, block: int, rest: float = 0.0) -> Array:
    """Lay out (samples, channels, height, width); `rest` fills the padding."""
    samples, outer, pixels, inner = grid_of(values.shape, block)
    padded = np.full((samples, outer * inner, pixels), rest, np.float32)
    padded[:, : values.shape[1]] = values.reshape(samples, -1, pixels)
    return np.ascontiguousarray(padded.reshape(samples, outer, inner, pixels).swapaxes(2, 3))


def plain(array: Array, shape: tuple[int, ...]) -> Array:
    """Undo `blocked`; the padding must be 0."""
    padded = array.swapaxes(2, 3).reshape(shape[0], -1, *shape[2:])
    assert not padded[:, shape[1] :].any()
    return padded[:, : shape[1]]


def table(values: Array, block: int) -> Array:
    """Lay out one number per channel."""
    return blocked(values.reshape(1, -1, 1, 1), block).reshape(-1)


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def same_for_any_threads(run: Callable[[int], list[Array]]) -> list[Array]:
    first, *others = (run(threads) for threads in THREADS)
    for other in others:
        for got, want in zip(other, first, strict=True):
            np.testing.assert_array_equal(got, want)
    return first


# PReLU, factors and offsets --------------------------------------------------------------------


@GRIDS
@pytest.mark.parametrize("in_place", [False, True])
def test_prelu(isa: str, shape: tuple[int, ...], block: int, in_place: bool) -> None:
    x, slopes = normal(*shape), normal(shape[1], seed=2)
    x.reshape(-1)[0] = np.nan

    def run(threads: int) -> list[Array]:
        source = blocked(x, block)
        target = source if in_place else np.empty_like(source)
        kept = np.empty_like(source) if in_place else None
        PReLUForward(
            threads=threads, **GridKernel.sizes(grid_of(shape, block)), x=source,
            slopes=table(slopes, block), y=target, kept=kept,
        ).run()  # fmt: skip
        return [plain(each, shape) for each in (target, kept) if each is not None]

    y, *kept = same_for_any_threads(run)
    np.testing.assert_array_equal(y, np.where(x > 0, x, slopes[:, None, None] * x))
    for copy in kept:
        np.testing.assert_array_equal(copy, x)


@GRIDS
@pytest.mark.parametrize("data", [False, True])
def test_prelu_backward(isa: str, shape: tuple[int, ...], block: int, data: bool) -> None:
    x, dy, slopes = normal(*shape), normal(*shape, seed=2), normal(shape[1], seed=3)
    sizes = GridKernel.sizes(grid_of(shape, block))

    def run(threads: int) -> list[Array]:
        slope = blocked(dy, block)
        sums = np.full(sizes["samples"] * sizes["outer"] * sizes["inner"], 7, np.float32)
        PReLUBackward(
            threads=threads, **sizes, x=blocked(x, block), slopes=table(slopes, block), dy=slope,
            dx=slope if data else None, sums=sums,
        ).run()  # fmt: skip
        return [plain(slope, shape), sums.reshape(shape[0], -1)[:, : shape[1]]]

    dx, sums = same_for_any_threads(run)
    want = np.where(x <= 0, slopes[:, None, None] * dy, dy) if data else dy
    np.testing.assert_array_equal(dx, want)
    want = np.where(x <= 0, x.astype(float) * dy, 0).sum(axis=(2, 3))
    np.testing.assert_allclose(sums, want, rtol=1e-4, atol=1e-4)


@GRIDS
@pytest.mark.parametrize("in_place", [False, True])
def test_scale_shift(isa: str, shape: tuple[int, ...], block: int, in_place: bool) -> None:
    x, factors, offsets = normal(*shape), normal(shape[1], seed=2), normal(shape[1], seed=3)

    def run(threads: int) -> list[Array]:
        source = blocked(x, block)
        target = source if in_place else np.empty_like(source)
        kept = np.empty_like(source) if in_place else None
        ScaleShiftForward(
            threads=threads, **GridKernel.sizes(grid_of(shape, block)), x=source,
            factors=table(factors, block), offsets=table(offsets, block), y=target, kept=kept,
        ).run()  # fmt: skip
        return [plain(each, shape) for each in (target, kept) if each is not None]

    y, *kept = same_for_any_threads(run)
    want = x.astype(float) * factors[:, None, None] + offsets[:, None, None]
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
    for copy in kept:
        np.testing.assert_array_equal(copy, x)


@GRIDS
@pytest.mark.parametrize("wanted", [(True, True, True), (False, True, False), (True, False, True)])
def test_scale_shift_backward(
    isa: str, shape: tuple[int, ...], block: int, wanted: tuple[bool, ...]
) -> None:
    x, dy, factors = normal(*shape), normal(*shape, seed=2), normal(shape[1], seed=3)
    sizes = GridKernel.sizes(grid_of(shape, block))

    def run(threads: int) -> list[Array]:
        slope = blocked(dy, block)
        size = sizes["samples"] * sizes["outer"] * sizes["inner"]
        products, totals = (np.full(size, 7, np.float32) if w else None for w in wanted[1:])
        ScaleShiftBackward(
            threads=threads, **sizes, x=blocked(x, block), factors=table(factors, block),
            dy=slope, dx=slope if wanted[0] else None, products=products, totals=totals,
        ).run()  # fmt: skip
        sums = [each for each in (products, totals) if each is not None]
        return [plain(slope, shape), *(s.reshape(shape[0], -1)[:, : shape[1]] for s in sums)]

    dx, *sums = same_for_any_threads(run)
    np.testing.assert_array_equal(dx, dy * factors[:, None, None] if wanted[0] else dy)
    definitions = x.astype(float) * dy, dy.astype(float)
    wants = [each.sum(axis=(2, 3)) for each, w in zip(definitions, wanted[1:], strict=True) if w]
    for got, want in zip(sums, wants, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


# Dropout ---------------------------------------------------------------------------------------


@GRIDS
def test_dropout_draws_by_logical_place(isa: str, shape: tuple[int, ...], block: int) -> None:
    """Also where blocks do not begin with a block of four random words."""
    key, step, sample, threshold = random.key(3, "dropout"), 1 << 40, 5, 0x9000_0000
    x = normal(*shape)
    x.reshape(-1)[0] = np.inf  # a dropped element is 0, whatever it was
    words = random.bits_batch(key, step, sample, shape[0], x[0].size).reshape(shape)

    def run(threads: int) -> list[Array]:
        y = blocked(x, block)
        DropoutKernel(
            threads=threads, **GridKernel.sizes(grid_of(shape, block)), x=y, y=y, key=key,
            step=step, first_sample=sample, threshold=threshold, scale=1.5,
        ).run()  # fmt: skip
        return [plain(y, shape)]

    (y,) = same_for_any_threads(run)
    np.testing.assert_array_equal(y, np.where(words >= threshold, x * np.float32(1.5), 0))


# LRN -------------------------------------------------------------------------------------------


def region_sums(values: Array, half: int, across: bool) -> Array:
    """Sum over each element's region."""
    total = np.zeros_like(values)
    axes = (1,) if across else (2, 3)
    for steps in np.ndindex(*(2 * half + 1,) * len(axes)):
        into, out = [slice(None)] * 4, [slice(None)] * 4
        for axis, step in zip(axes, steps, strict=True):
            by, size = step - half, values.shape[axis]
            into[axis] = slice(max(0, -by), max(0, size - max(0, by)))
            out[axis] = slice(max(0, by), max(0, size - max(0, -by)))
        total[tuple(into)] += values[tuple(out)]
    return total


@GRIDS
@pytest.mark.parametrize("across", [True, False], ids=["across", "within"])
@pytest.mark.parametrize(
    ("half", "beta", "k"), [(2, 0.75, 1.0), (1, 0.5, 2.0), (4, 0.75, 1.0), (0, 0.6, 1.0)]
)
def test_lrn(
    isa: str, shape: tuple[int, ...], block: int, across: bool, half: int, beta: float, k: float
) -> None:
    x, dy, alpha = normal(*shape), normal(*shape, seed=2), 0.3
    samples, outer, _, inner = grid_of(shape, block)
    sizes = {
        "samples": samples, "outer": outer, "height": shape[2], "width": shape[3], "inner": inner,
        "half": half, "across": across, "alpha": alpha, "beta": beta, "k": k,
    }  # fmt: skip

    def run(threads: int) -> list[Array]:
        y, dx, source = blocked(x, block), blocked(dy, block), blocked(x, block)
        Lrn(threads=threads, **sizes, x=y, out=y).run()
        Lrn(threads=threads, **sizes, x=source, dy=dx, out=dx).run()
        return [plain(y, shape), plain(dx, shape)]

    y, dx = same_for_any_threads(run)
    wide, slope = x.astype(float), dy.astype(float)
    s = k + alpha * region_sums(wide**2, half, across)
    np.testing.assert_allclose(y, wide * s**-beta, rtol=2e-5, atol=1e-6)
    around = region_sums(slope * wide * s ** (-beta - 1), half, across)
    want = slope * s**-beta - 2 * alpha * beta * wide * around
    np.testing.assert_allclose(dx, want, rtol=2e-5, atol=1e-5)


# Softmax ---------------------------------------------------------------------------------------


def softmax(x: Array) -> Array:
    with np.errstate(invalid="ignore"):
        e = np.exp(x.astype(float) - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@GRIDS
@pytest.mark.parametrize("scale", [1, 60])
def test_softmax(isa: str, shape: tuple[int, ...], block: int, scale: float) -> None:
    x, dy = scale * normal(*shape), normal(*shape, seed=2)
    want = softmax(x)
    sizes = {**GridKernel.sizes(grid_of(shape, block)), "channels": shape[1]}

    def run(threads: int) -> list[Array]:
        y, dx = blocked(x, block), blocked(dy, block)
        SoftmaxForward(threads=threads, **sizes, x=y, y=y).run()
        SoftmaxBackward(threads=threads, **sizes, y=y, dy=dx, dx=dx).run()
        return [plain(y, shape), plain(dx, shape)]

    y, dx = same_for_any_threads(run)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-7)
    dot = (want * dy).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(dx, (dy - dot) * want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("odd", [np.nan, np.inf])
@pytest.mark.parametrize("block", [1, 8, 16, 0])
def test_odd_scores_spoil_their_pixel_alone(isa: str, odd: float, block: int) -> None:
    shape = (2, 35, 4, 5)
    for channel in (0, 7, 34):
        x = normal(*shape)
        x[1, channel, 2, 3] = odd
        y = blocked(x, block)
        SoftmaxForward(
            threads=1, **GridKernel.sizes(grid_of(shape, block)), channels=35, x=y, y=y
        ).run()
        got, want = plain(y, shape), softmax(x)
        assert np.isnan(got[1, channel, 2, 3]) and np.isnan(want[1, channel, 2, 3])
        got[1, :, 2, 3] = want[1, :, 2, 3] = 0
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


# Checks ----------------------------------------------------------------------------------------


def test_short_arrays_are_refused(isa: str) -> None:
    sizes = GridKernel.sizes((2, 3, 4, 8))
    whole, short, channels = np.zeros(192, np.float32), np.zeros(191, np.float32), np.zeros(24)
    few, some = channels.astype(np.float32), np.zeros(48, np.float32)
    cases = {
        "kept": PReLUForward(threads=1, **sizes, x=whole, slopes=few, y=whole, kept=short),
        "slopes": PReLUForward(threads=1, **sizes, x=whole, slopes=few[1:], y=whole),
        "sums": PReLUBackward(threads=1, **sizes, x=whole, slopes=few, dy=whole, sums=some[1:]),
        "offsets": ScaleShiftForward(
            threads=1, **sizes, x=whole, factors=few, offsets=few[1:], y=whole
        ),
        "totals": ScaleShiftBackward(
            threads=1, **sizes, x=whole, factors=few, dy=whole, totals=some[1:]
        ),
        "y": DropoutKernel(threads=1, **sizes, x=whole, y=short),
        "dx": SoftmaxBackward(threads=1, **sizes, channels=20, y=whole, dy=whole, dx=short),
        "out": Lrn(
            threads=1, samples=2, outer=3, height=2, width=2, inner=8, x=whole, out=short
        ),
    }  # fmt: skip
    for field, kernel in cases.items():
        with pytest.raises(BackendError, match=rf"kernel {kernel.name}: {field} has \d+ elements"):
            kernel.run()
    with pytest.raises(BackendError, match="kernel softmax: 25 channels in 3 blocks of 8"):
        SoftmaxForward(threads=1, **sizes, channels=25, x=whole, y=whole).run()
