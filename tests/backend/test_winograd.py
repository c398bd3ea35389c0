"""Winograd's method: its matrices, its kernels on every block size, and when it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_cases import Array, blob, window

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend import compiled
from pycaffe_fire.backend.kernels import winograd as kernels
from pycaffe_fire.backend.kernels.winograd import PRODUCTS, A, B, G
from pycaffe_fire.backend.onednn import winograd as plans
from pycaffe_fire.backend.tensor import aligned

pytest.importorskip("numba")
onednn = pytest.importorskip("pycaffe_fire.backend.onednn")
RNG = np.random.default_rng(11)


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def test_matrices_give_a_correlation() -> None:
    a, b, g = np.array(A), np.array(B), np.array(G)
    x, w = RNG.standard_normal(6), RNG.standard_normal(3)
    np.testing.assert_allclose(a.T @ ((g @ w) * (b.T @ x)), np.correlate(x, w), rtol=1e-12)


def test_numbers_of_the_transforms_have_no_rounding() -> None:
    for matrix in (A, B):
        np.testing.assert_array_equal(np.float32(matrix), matrix)


# Kernels: images of 2 x 2b channels, tiles in rows of an image with a border.

ROWS, COLUMNS, HEIGHT, WIDTH = 3, 2, 10, 7
BLOCKS = pytest.mark.parametrize("b", [8, 16])
PLACES = pytest.mark.parametrize("count", [1, ROWS, 2 * ROWS], ids=["part", "image", "images"])


def images(b: int) -> Array:
    return normal(2, 2, HEIGHT, WIDTH, b)


def operand(rows: int, columns: int, values: Array | None = None) -> tuple[Array, int]:
    step = rows * columns + 7
    flat = aligned(PRODUCTS * step, np.dtype(np.float32))
    flat[...] = np.nan
    if values is not None:
        flat.reshape(PRODUCTS, step)[:, : rows * columns] = values.reshape(PRODUCTS, -1)
    return flat, step


def matrices_of(flat: Array, step: int, rows: int, columns: int) -> Array:
    """A copy: kernels go on writing into the memory."""
    used = flat.reshape(PRODUCTS, step)[:, : rows * columns]
    return used.reshape(PRODUCTS, rows, columns).copy()


def places(count: int) -> list[tuple[int, int, int, int]]:
    return [(first, count, ROWS, COLUMNS) for first in range(0, 2 * ROWS, count)]


def spread(kernel: Any, x: Array, count: int, *more: Any) -> Array:
    """V or M of all tiles, (36, tiles, channels)."""
    channels = x.shape[1] * x.shape[4]
    flat, step = operand(count * COLUMNS, channels)
    parts = []
    for place in places(count):
        kernel(x, flat, step, place, *more)
        parts.append(matrices_of(flat, step, count * COLUMNS, channels))
    return np.concatenate(parts, axis=1)


def gather(kernel: Any, values: Array, x: Array, count: int, *more: Any) -> None:
    tiles = count * COLUMNS
    for i, place in enumerate(places(count)):
        chunk = values[:, i * tiles : (i + 1) * tiles]
        kernel(*_with_step(operand(tiles, values.shape[2], chunk), x), place, *more)


def _with_step(made: tuple[Array, int], x: Array) -> tuple[Array, Array, int]:
    return made[0], x, made[1]


def padded(x: Array, before: int, size: int, rows: int, columns: int) -> Array:
    """(tiles, channels, size, size): what each tile of the image shows, zeros outside."""
    plain = x.transpose(0, 1, 4, 2, 3).reshape(len(x), -1, *x.shape[2:4])
    wide = np.pad(plain, ((0, 0), (0, 0), (before, 12), (before, 12)))
    return np.stack([
        image[:, 4 * r : 4 * r + size, 4 * c : 4 * c + size]
        for image in wide for r in range(rows) for c in range(columns)
    ])  # fmt: skip


def transformed(matrix: Any, tiles: Array) -> Array:
    """(36, tiles, channels) of M tile M^T, in double precision."""
    made = np.einsum("ai,tcij,bj->abtc", matrix, tiles, matrix)
    return made.reshape(PRODUCTS, *tiles.shape[:2])


@BLOCKS
@PLACES
def test_patches(b: int, count: int) -> None:
    x = images(b)
    expected = transformed(np.array(B).T, padded(x, 1, 6, ROWS, COLUMNS))
    found = spread(kernels.spread_patches, x, count, (1, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@BLOCKS
@PLACES
def test_gradient_of_patches_is_the_transpose(b: int, count: int) -> None:
    """<spread(x), v> = <x, gather(v)> for every x, so also for single pixels of all kinds."""
    x, v = images(b), normal(PRODUCTS, 2 * ROWS * COLUMNS, 2 * b)
    dx = np.full_like(x, np.nan)
    carried = np.full((2, 2, (4 * COLUMNS + 2) * b), np.nan, np.float32)
    gather(kernels.gather_patches, v, dx, count, (1, 1), carried)
    for pixel in [(0, 0, 0, 0, 0), (1, 1, HEIGHT - 1, WIDTH - 1, b - 1), (0, 1, 4, 3, 5)]:
        one = np.zeros_like(x)
        one[pixel] = 1
        expected = (spread(kernels.spread_patches, one, count, (1, 1)) * v).sum(dtype=float)
        np.testing.assert_allclose(dx[pixel], expected, rtol=1e-5, atol=1e-5)
    left = (spread(kernels.spread_patches, x, count, (1, 1)) * v).sum(dtype=float)
    np.testing.assert_allclose((x * dx).sum(dtype=float), left, rtol=1e-4)


@BLOCKS
@PLACES
def test_tiles(b: int, count: int) -> None:
    m, bias = normal(PRODUCTS, 2 * ROWS * COLUMNS, 2 * b), normal(2 * b)
    y = np.full_like(images(b), np.nan)
    gather(kernels.gather_tiles, m, y, count, bias, np.float32(0.25))
    made = np.einsum(
        "ai,ijtc,bj->tcab", np.array(A).T, m.reshape(6, 6, *m.shape[1:]), np.array(A).T
    )
    expected = made + bias[:, None, None]
    expected = np.where(expected > 0, expected, 0.25 * expected)
    found = padded(y, 0, 4, ROWS, COLUMNS)
    inside = padded(np.ones_like(y), 0, 4, ROWS, COLUMNS)
    np.testing.assert_allclose(found, expected * inside, rtol=1e-5, atol=1e-5)


@BLOCKS
@PLACES
def test_gradient_of_tiles(b: int, count: int) -> None:
    dy, sums = images(b), np.zeros((count, 2 * b), np.float32)
    expected = transformed(np.array(A), padded(dy, 0, 4, ROWS, COLUMNS))
    found = spread(kernels.spread_tiles, dy, count, sums)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(sums.sum(0), dy.sum((0, 2, 3)).reshape(-1), rtol=1e-4, atol=1e-4)


@BLOCKS
def test_windows_and_their_gradient(b: int) -> None:
    w = normal(2, 3, 3, 3, b, b)
    plain = w.transpose(1, 4, 0, 5, 2, 3).reshape(3 * b, 2 * b, 3, 3)
    flat, step = operand(3 * b, 2 * b)
    kernels.spread_windows(w, flat, step)
    found = matrices_of(flat, step, 3 * b, 2 * b)
    np.testing.assert_allclose(found, transformed(np.array(G), plain), rtol=1e-5, atol=1e-5)

    u = normal(PRODUCTS, 3 * b, 2 * b)
    before = normal(*w.shape)
    after = before.copy()
    flat, step = operand(3 * b, 2 * b, u)
    kernels.gather_windows(flat, after, step)
    back = np.einsum("ia,ijxy,jb->xyab", np.array(G), u.reshape(6, 6, *u.shape[1:]), np.array(G))
    expected = back.reshape(3, b, 2, b, 3, 3).transpose(2, 0, 4, 5, 1, 3)
    np.testing.assert_allclose(after - before, expected, rtol=1e-4, atol=1e-5)


# Plans.


def plan(shape: tuple[int, ...], outputs: int, geometry: Any, groups: int = 1) -> Any:
    """A convolution on the blocked output of another."""
    backend = onednn.OneDNNBackend(1)
    x = blob(backend, shape)
    one = blob(backend, (shape[1], shape[1], 1, 1))
    before = backend.convolution(blob(backend, shape), one, None, x, window((1, 1)), 1)
    assert type(before) is onednn.Convolution
    sizes = [
        (size + 2 * geometry.pad[i] - geometry.dilation[i] * 2 - 1) // geometry.stride[i] + 1
        for i, size in enumerate(shape[2:])
    ]
    y = blob(backend, (shape[0], outputs, *sizes))
    w = blob(backend, (outputs, shape[1] // groups, *geometry.kernel))
    return backend.convolution(x, w, blob(backend, (outputs,)), y, geometry, groups)


SAME = window((3, 3), 1, 1)


@pytest.mark.parametrize(
    ("shape", "outputs", "geometry", "groups", "used"),
    [
        ((8, 64, 28, 28), 96, SAME, 1, True),
        ((1, 64, 56, 56), 64, SAME, 1, True),
        ((8, 64, 28, 28), 96, window((3, 3)), 1, True),
        ((8, 64, 28, 28), 96, SAME, 2, False),
        ((8, 64, 28, 28), 96, window((3, 3), 2, 1), 1, False),
        ((8, 64, 28, 28), 96, window((3, 3), 1, 2, 2), 1, False),
        ((8, 64, 28, 28), 96, window((3, 3), (1, 2), 1), 1, False),
        ((8, 8, 28, 28), 8, SAME, 1, False),  # more work for the transforms than it saves
        ((1, 512, 4, 4), 512, SAME, 1, False),  # all of it for the weights
        ((8, 60, 28, 28), 96, SAME, 1, False),  # not in whole vectors
    ],
)
def test_it_is_used_where_it_pays(
    shape: tuple[int, ...], outputs: int, geometry: Any, groups: int, used: bool
) -> None:
    assert isinstance(plan(shape, outputs, geometry, groups), plans.Winograd) == used


def test_not_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "numba", None)
    assert not isinstance(plan((8, 64, 28, 28), 96, SAME), plans.Winograd)


def results(made: Any, x: Array, w: Array, dy: Array) -> list[Array]:
    made.x.data[...], made.w.data[...] = x, w
    made.forward()
    made.y.diff[...] = dy
    made.w.gradient.clear()
    made.backward(True, True, True)
    return [made.y.data.copy(), made.x.diff.copy(), made.w.diff.copy(), made.b.diff.copy()]


def exact(x: Array, w: Array, dy: Array) -> list[Array]:
    """3x3, pad 1, in double precision."""
    rows, columns = x.shape[2:]
    wide = np.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    y, dx, dw = np.zeros(dy.shape), np.zeros(wide.shape), np.zeros(w.shape)
    for i in range(3):
        for j in range(3):
            part = wide[:, :, i : i + rows, j : j + columns]
            y += np.einsum("nchw,oc->nohw", part, w[:, :, i, j], optimize=True)
            back = np.einsum("nohw,oc->nchw", dy, w[:, :, i, j].astype(float), optimize=True)
            dx[:, :, i : i + rows, j : j + columns] += back
            dw[:, :, i, j] = np.einsum("nohw,nchw->oc", dy, part, optimize=True)
    return [y, dx[:, :, 1:-1, 1:-1], dw, dy.sum((0, 2, 3), dtype=float)]


def test_it_differs_by_rounding_only() -> None:
    """Some ten units in the last place of the largest result, where a plain sum has one or two."""
    x, w, dy = normal(4, 128, 28, 28), normal(96, 128, 3, 3), normal(4, 96, 28, 28)
    made = plan((4, 128, 28, 28), 96, SAME)
    assert isinstance(made, plans.Winograd)
    for found, expected in zip(results(made, x, w, dy), exact(x, w, dy), strict=True):
        error = np.abs(found - expected)
        assert error.max() < 5e-6 * np.abs(expected).max()
        assert np.sqrt((error**2).mean()) < 2e-6 * np.sqrt((expected**2).mean())


@pytest.mark.parametrize("chunk", [1, 700_000, 1_400_000, 10**9])
def test_chunks_change_nothing_but_memory(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """One row of tiles, an image in two parts, an image, the whole batch."""
    x, w, dy = normal(2, 64, 48, 40), normal(64, 64, 3, 3), normal(2, 64, 48, 40)
    monkeypatch.setattr(plans, "CHUNK", chunk)
    made = plan((2, 64, 48, 40), 64, SAME)
    for found, expected in zip(results(made, x, w, dy), exact(x, w, dy), strict=True):
        np.testing.assert_allclose(found, expected, atol=5e-6 * np.abs(expected).max())


def test_an_engine_of_caffe_is_direct() -> None:
    shape = "shape { dim: 2 dim: 3 dim: 32 dim: 32 }"
    text = f'layer {{ name: "in" type: "Input" top: "x" input_param {{ {shape} }} }}'
    below = "x"
    for name, more in (("first", ""), ("fast", ""), ("exact", "engine: CAFFE"), ("last", "")):
        text += (
            f'layer {{ name: "{name}" type: "Convolution" bottom: "{below}" top: "{name}" '
            f"convolution_param {{ num_output: 64 kernel_size: 3 pad: 1 {more} }} }}"
        )
        below = name
    net = caffe.Net(schema.parse_text(text, schema.NetParameter()), caffe.TEST)
    used = [isinstance(layer._plans[0][0], plans.Winograd) for layer in net.layers[1:]]
    assert used == [False, True, False, True]


def test_the_plain_functions_stand_in_where_numba_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "numba", None)
    assert compiled.intrinsic(abs) is abs
