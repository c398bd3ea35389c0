"""Kernels on rows (pixels, channels) against NumPy, on every instruction set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend.cpu.rows import (
    AddBias,
    Col2im,
    CopyColumns,
    Im2col,
    ReLUBackward,
    WeightedSum,
)
from pycaffe_fire.backend.plans import Window
from pycaffe_fire.errors import BackendError

Array = Any
SIZES = pytest.mark.parametrize(
    ("rows", "channels"), [(1, 1), (5, 3), (17, 21), (40, 64), (3, 100), (700, 33)]
)


def normal(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def same_for_any_threads(run: Callable[[int], Array]) -> Array:
    first, *others = (run(threads) for threads in (1, 2, 3))
    for other in others:
        np.testing.assert_array_equal(other, first)
    return first


def relu(values: Array, slope: float) -> Array:
    """NaN stays NaN; without a slope even minus infinity becomes 0."""
    with np.errstate(invalid="ignore"):
        below = np.float32(slope) * values if slope else np.zeros_like(values)
    return np.where(values <= 0, below, values)


@SIZES
@pytest.mark.parametrize("slope", [0.0, 0.1, 1.0])
def test_bias_and_relu(isa: str, rows: int, channels: int, slope: float) -> None:
    y, bias = normal(rows, channels), normal(channels, seed=2)
    y[0, 0], y[-1, -1] = np.nan, -np.inf

    def run(threads: int) -> Array:
        out = y.copy()
        AddBias(
            threads=threads, y=out, bias=bias, rows=rows, channels=channels, slope=slope
        ).run()  # fmt: skip
        return out

    np.testing.assert_array_equal(same_for_any_threads(run), relu(y + bias, slope))


@pytest.mark.parametrize("count", [1, 15, 16, 100, 16384, 50_001])
@pytest.mark.parametrize("slope", [0.0, 0.1])
def test_relu_backward_in_place(isa: str, count: int, slope: float) -> None:
    y, dy = normal(count), normal(count, seed=2)
    y[0], dy[-1] = np.nan, np.inf

    def run(threads: int) -> Array:
        dx = dy.copy()
        ReLUBackward(threads=threads, y=y, dy=dx, dx=dx, count=count, slope=slope).run()
        return dx

    with np.errstate(invalid="ignore"):
        below = np.float32(slope) * dy if slope else np.zeros_like(dy)
    np.testing.assert_array_equal(same_for_any_threads(run), np.where(y <= 0, below, dy))


@pytest.mark.parametrize("count", [1, 15, 16, 100, 16384, 50_001])
@pytest.mark.parametrize("inputs", [1, 2, 5])
@pytest.mark.parametrize("target", [None, 0, -1], ids=["apart", "first", "last"])
def test_weighted_sums(isa: str, count: int, inputs: int, target: int | None) -> None:
    xs, factors = normal(inputs, count), normal(inputs, seed=2)

    def run(threads: int) -> Array:
        own = xs.copy()
        y = np.empty(count, np.float32) if target is None else own[target]
        WeightedSum(
            threads=threads, xs=list(own), coefficients=factors, y=y, inputs=inputs, count=count,
            slope=0.1,
        ).run()  # fmt: skip
        return y

    want = (xs.astype(float) * factors[:, None]).sum(axis=0)
    got = same_for_any_threads(run)
    np.testing.assert_allclose(got, np.where(want <= 0, 0.1 * want, want), rtol=1e-5, atol=1e-6)


@SIZES
def test_columns(isa: str, rows: int, channels: int) -> None:
    source = normal(rows, channels)
    for start, to, count in ((0, 0, channels), (channels // 2, 3, channels // 3), (0, 5, 1)):

        def run(
            threads: int, start: int = start, to: int = to, count: int = count
        ) -> Array:  # fmt: skip
            target = np.zeros((rows, channels + 7), np.float32)
            CopyColumns(
                threads=threads, source=source, target=target, rows=rows, source_columns=channels,
                target_columns=channels + 7, start=start, to=to, count=count,
            ).run()  # fmt: skip
            return target

        want = np.zeros((rows, channels + 7), np.float32)
        want[:, to : to + count] = source[:, start : start + count]
        np.testing.assert_array_equal(same_for_any_threads(run), want)


# Patches ---------------------------------------------------------------------------------------

# image, channels, kernel, stride, pad, dilation, and the channels in patches (start, count)
WINDOWS = {
    "dense": ((7, 9), 5, (3, 3), (1, 1), (1, 1), (1, 1), (0, 5)),
    "strided": ((8, 7), 3, (3, 2), (2, 3), (1, 0), (1, 1), (0, 3)),
    "dilated": ((9, 9), 4, (3, 3), (1, 2), (2, 3), (2, 3), (0, 4)),
    "group": ((6, 6), 8, (3, 3), (1, 1), (1, 1), (1, 1), (4, 4)),
    "one pixel": ((1, 1), 20, (1, 1), (1, 1), (0, 0), (1, 1), (0, 20)),
    "larger than the image": ((2, 1), 17, (7, 5), (1, 1), (4, 3), (1, 1), (0, 17)),
    "in the padding alone": ((2, 2), 3, (2, 2), (3, 3), (3, 3), (1, 1), (1, 2)),
}


def patches_of(x: Array, out: tuple[int, int], window: Window, channels: tuple[int, int]) -> Array:
    """The elements of x (images, height, width, channels) that windows see."""
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = (
        window.kernel, window.stride, window.pad, window.dilation
    )  # fmt: skip
    start, count = channels
    patches = np.zeros((len(x), *out, kh, kw, count), x.dtype)
    for n, i, j, k, m in np.ndindex(*patches.shape[:-1]):
        row, column = i * sh - ph + k * dh, j * sw - pw + m * dw
        if 0 <= row < x.shape[1] and 0 <= column < x.shape[2]:
            patches[n, i, j, k, m] = x[n, row, column, start : start + count]
    return patches


@pytest.mark.parametrize("name", WINDOWS)
def test_patches_and_back(isa: str, name: str) -> None:
    image, channels, *geometry, (start, count) = WINDOWS[name]
    window, images = Window(*geometry), 3
    out = tuple(
        (size + 2 * pad - (dilation * (kernel - 1) + 1)) // stride + 1
        for size, kernel, stride, pad, dilation in zip(image, *geometry, strict=True)
    )
    sizes = {
        **Im2col.sizes(image, out, window), "channels": channels, "start": start, "count": count
    }  # fmt: skip
    x = normal(images, *image, channels)
    want = patches_of(x, out, window, (start, count))
    first, rows = 1, images * out[0] - 1  # not all rows of outputs

    def gather(threads: int) -> Array:
        patches = np.full((rows, *want.shape[2:]), np.nan, np.float32)
        Im2col(threads=threads, **sizes, x=x, patches=patches, first=first, rows=rows).run()
        return patches

    np.testing.assert_array_equal(
        same_for_any_threads(gather), want.reshape(-1, *want.shape[2:])[first:]
    )

    # The other way is the transpose, of the last images, and other channels stay as they are.
    slopes = normal(images - 1, *want.shape[1:], seed=2)

    def scatter(threads: int) -> Array:
        dx = np.full_like(x, 7)
        Col2im(threads=threads, **sizes, patches=slopes, dx=dx, first=1, images=images - 1).run()
        return dx

    dx = same_for_any_threads(scatter)
    inside = dx[1:, :, :, start : start + count]
    total = np.zeros(inside.shape)
    for row, column, channel in np.ndindex(*inside.shape[1:]):
        one = np.zeros((1, *x.shape[1:]))
        one[0, row, column, start + channel] = 1
        seen = patches_of(one, out, window, (start, count))[0]
        total[:, row, column, channel] = (slopes * seen).reshape(images - 1, -1).sum(axis=1)
    np.testing.assert_allclose(inside, total, rtol=1e-5, atol=1e-5)
    dx[1:, :, :, start : start + count] = 7
    assert (dx == 7).all()


def test_wrong_sizes_are_refused(isa: str) -> None:
    flat = np.zeros(60, np.float32)
    window = Window((3, 3), (1, 1), (1, 1), (1, 1))
    sizes = {**Im2col.sizes((4, 5), (4, 5), window), "channels": 3, "start": 0, "count": 3}
    patches = np.zeros(20 * 27, np.float32)
    cases = {
        "bias has 4 ": AddBias(threads=1, y=flat, bias=flat[:4], rows=12, channels=5, slope=1),
        "y has 60 ": AddBias(threads=1, y=flat, bias=flat, rows=13, channels=5, slope=1),
        "3 inputs, 2 arrays": WeightedSum(
            threads=1, xs=[flat, flat], coefficients=flat, y=flat, inputs=3, count=60
        ),
        "xs has 59 ": WeightedSum(
            threads=1, xs=[flat, flat[1:]], coefficients=flat, y=flat, inputs=2, count=60
        ),
        "columns beyond 5": CopyColumns(
            threads=1, source=flat, target=flat, rows=2, source_columns=5, target_columns=6,
            start=3, to=0, count=3,
        ),
        "columns beyond 6": CopyColumns(
            threads=1, source=flat, target=flat, rows=2, source_columns=9, target_columns=6,
            start=3, to=4, count=3,
        ),
        "x has 60 ": Im2col(threads=1, **sizes, x=flat, patches=patches, first=1, rows=4),
        "patches has 539 ": Im2col(
            threads=1, **sizes, x=flat, patches=patches[1:], first=0, rows=4
        ),
        "dx has 60 ": Col2im(threads=1, **sizes, patches=patches, dx=flat, first=1, images=1),
        "channels 1 to 3 of 3": Col2im(
            threads=1, **{**sizes, "start": 1}, patches=patches, dx=flat, first=0, images=1
        ),
    }  # fmt: skip
    for message, kernel in cases.items():
        with pytest.raises(BackendError, match=f"kernel {kernel.name}: .*{message}"):
            kernel.run()
