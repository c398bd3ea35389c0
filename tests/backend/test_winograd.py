"""Winograd's method: its matrices, its kernels on every block size, and when it is used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.kernels import winograd as kernels
from pycaffe_fire.backend.kernels.sweeps import WHOLE
from pycaffe_fire.backend.kernels.winograd import NO_IMAGES, PRODUCTS, TILES, matrices
from pycaffe_fire.backend.onednn import winograd as plans
from pycaffe_fire.backend.plans import Window
from pycaffe_fire.backend.tensor import aligned
from tests.backend.op_cases import Array, Conv, blob, window
from tests.random_numbers import RNG

pytest.importorskip("numba")
onednn = pytest.importorskip("pycaffe_fire.backend.onednn")


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


WINDOWS = pytest.mark.parametrize("window_size", TILES)


@WINDOWS
def test_matrices_give_a_correlation(window_size: int) -> None:
    a, b, g = map(np.array, matrices(window_size))
    x, w = RNG.standard_normal(6), RNG.standard_normal(window_size)
    np.testing.assert_allclose(a.T @ ((g @ w) * (b.T @ x)), np.correlate(x, w), rtol=1e-11)


@WINDOWS
def test_numbers_of_the_transforms_have_no_rounding(window_size: int) -> None:
    for matrix in matrices(window_size)[:2]:
        np.testing.assert_array_equal(np.array(matrix, np.float32), matrix)


# Kernels: two images with three blocks of channels, of which V and M have the last two, and tiles
# that reach beyond the border.


HELD = (1, 2)


class Case:
    def __init__(self, b: int, window_size: int, part: str) -> None:
        self.b, self.size, self.tile = b, window_size, TILES[window_size]
        self.a, self.b_matrix, self.g = map(np.array, matrices(window_size))
        self.rows, self.columns = 3, 2
        self.height, self.width = 3 * self.tile - 1, 2 * self.tile - 1
        self.count = {"part": 1, "image": self.rows, "images": 2 * self.rows}[part]
        self.pad = (window_size // 2, window_size // 2)
        self.tiles, self.channels = 2 * self.rows * self.columns, 2 * b

    def images(self) -> Array:
        """With nothing but zeros in the first block."""
        made = normal(2, 3, self.height, self.width, self.b)
        made[:, 0] = 0
        return made

    @property
    def places(self) -> list[tuple[int, ...]]:
        starts = range(0, 2 * self.rows, self.count)
        return [(first, self.count, self.rows, self.columns, self.tile) for first in starts]

    def spread(self, kernel: Any, x: Array, *more: Any) -> Array:
        """V or M of all tiles, (36, tiles, channels)."""
        tiles, parts = self.count * self.columns, []
        flat, step = operand(tiles, self.channels)
        for place in self.places:
            kernel(x, flat, (step, self.channels), place, HELD, *more)
            parts.append(matrices_of(flat, step, tiles, self.channels))
        return np.concatenate(parts, axis=1)

    def gather(self, kernel: Any, values: Array, x: Array, *more: Any) -> None:
        tiles = self.count * self.columns
        for i, place in enumerate(self.places):
            flat, step = operand(tiles, self.channels, values[:, i * tiles : (i + 1) * tiles])
            kernel(flat, x, (step, self.channels), place, HELD, *more)

    def seen(self, x: Array, before: int, size: int) -> Array:
        """(tiles, channels, size, size): what each tile shows of its image, zeros outside."""
        plain = x[:, 1:].transpose(0, 1, 4, 2, 3).reshape(2, -1, self.height, self.width)
        wide = np.pad(plain, ((0, 0), (0, 0), (before, 12), (before, 12)))
        return np.stack([
            image[:, y : y + size, x : x + size] for image in wide
            for y in range(0, self.rows * self.tile, self.tile)
            for x in range(0, self.columns * self.tile, self.tile)
        ])  # fmt: skip


@pytest.fixture(params=[8, 16], ids=["8 channels", "16 channels"])
def b(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=["part", "image", "images"])
def case(b: int, window_size: int, request: pytest.FixtureRequest) -> Case:
    return Case(b, window_size, request.param)


def operand(
    rows: int, columns: int, values: Array | None = None, apart: int = 7
) -> tuple[Array, int]:
    step = rows * columns + apart
    flat = aligned(PRODUCTS * step, np.dtype(np.float32))
    flat[...] = np.nan
    if values is not None:
        flat.reshape(PRODUCTS, step)[:, : rows * columns] = values.reshape(PRODUCTS, -1)
    return flat, step


def matrices_of(flat: Array, step: int, rows: int, columns: int) -> Array:
    """A copy: kernels go on writing into the memory."""
    used = flat.reshape(PRODUCTS, step)[:, : rows * columns]
    return used.reshape(PRODUCTS, rows, columns).copy()


def transformed(matrix: Array, tiles: Array) -> Array:
    """(36, tiles, channels) of M tile M^T, in double precision."""
    made = np.einsum("ai,tcij,bj->abtc", matrix, tiles, matrix)
    return made.reshape(PRODUCTS, *tiles.shape[:2])


@WINDOWS
def test_patches(case: Case) -> None:
    x = case.images()
    expected = transformed(case.b_matrix.T, case.seen(x, case.pad[0], 6))
    found = case.spread(kernels.spread_patches, x, case.pad)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@WINDOWS
@pytest.mark.parametrize("add", [False, True])
def test_gradient_of_patches_behind_a_relu(case: Case, add: bool) -> None:
    v, before, y = normal(PRODUCTS, case.tiles, case.channels), case.images(), case.images()
    y[:, :, ::2] = np.maximum(y[:, :, ::2], 0)
    overlap = 6 - case.tile
    width = (case.tile * case.columns + overlap) * case.b
    carried = np.zeros((2, overlap, width), np.float32)
    plain, rectified = before.copy(), before.copy()
    case.gather(kernels.gather_patches, v, plain, case.pad, carried, add, NO_IMAGES)
    case.gather(kernels.gather_patches, v, rectified, case.pad, carried, add, y)
    np.testing.assert_array_equal(rectified[:, 1:], np.where(y > 0, plain, 0)[:, 1:])


@WINDOWS
@pytest.mark.parametrize("add", [False, True])
def test_gradient_of_patches_is_the_transpose(case: Case, add: bool) -> None:
    """<spread(x), v> = <x, gather(v)> for every x, so also for single pixels of all kinds."""
    x, v = case.images(), normal(PRODUCTS, case.tiles, case.channels)
    before = case.images() if add else np.full_like(x, np.nan)
    dx, overlap = before.copy(), 6 - case.tile
    width = (case.tile * case.columns + overlap) * case.b
    carried = np.full((2, overlap, width), np.nan, np.float32)
    case.gather(kernels.gather_patches, v, dx, case.pad, carried, add, NO_IMAGES)
    np.testing.assert_array_equal(dx[:, 0], before[:, 0])  # not its part
    dx[:, 0] = 0
    if add:
        dx -= before
    for pixel in [(0, 1, 0, 0, 0), (1, 2, -1, -1, -1), (0, 2, case.tile, 1, 5)]:
        one = np.zeros_like(x)
        one[pixel] = 1
        expected = (case.spread(kernels.spread_patches, one, case.pad) * v).sum(dtype=float)
        np.testing.assert_allclose(dx[pixel], expected, rtol=1e-5, atol=1e-4)
    left = (case.spread(kernels.spread_patches, x, case.pad) * v).sum(dtype=float)
    scale = np.abs(x * dx).sum(dtype=float)
    np.testing.assert_allclose((x * dx).sum(dtype=float), left, atol=1e-5 * scale)


@WINDOWS
def test_tiles(case: Case) -> None:
    m, bias = normal(PRODUCTS, case.tiles, case.channels), normal(case.channels)
    y = np.full_like(case.images(), np.nan)
    case.gather(kernels.gather_tiles, m, y, bias, np.float32(0.25))
    made = np.einsum("ia,ijtc,jb->tcab", case.a, m.reshape(6, 6, *m.shape[1:]), case.a)
    expected = made + bias[:, None, None]
    expected = np.where(expected > 0, expected, 0.25 * expected)
    inside = case.seen(np.ones_like(y), 0, case.tile)
    found = case.seen(y, 0, case.tile)
    np.testing.assert_allclose(found, expected * inside, rtol=1e-5, atol=1e-5)


@WINDOWS
def test_a_relu_of_tiles_has_no_minus_zero_and_keeps_nan(b: int, window_size: int) -> None:
    case = Case(b, window_size, "images")
    m, y = np.zeros((PRODUCTS, case.tiles, case.channels), np.float32), case.images()
    bias = np.ones(case.channels, np.float32)
    bias[:3] = -1, -np.inf, np.nan
    case.gather(kernels.gather_tiles, m, y, bias, np.float32(0))
    np.testing.assert_array_equal(y[0, 1, 0, 0, :4], [0, 0, np.nan, 1])
    assert not np.signbit(y[0, 1, 0, 0, :2]).any()


@WINDOWS
def test_gradient_of_tiles(case: Case) -> None:
    dy, sums = case.images(), np.zeros((case.count, case.channels), np.float32)
    expected = transformed(case.a, case.seen(dy, 0, case.tile))
    found = case.spread(kernels.spread_tiles, dy, sums)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        sums.sum(0), dy[:, 1:].sum((0, 2, 3)).reshape(-1), rtol=1e-4, atol=1e-4
    )


@WINDOWS
@pytest.mark.parametrize(
    ("outer", "inner", "b", "apart"),
    [(2, 3, WHOLE, 7), (2, 3, 2 * WHOLE, 7), (19, 27, WHOLE, 16), (13, 20, 2 * WHOLE, 16),
     (13, 20, 2 * WHOLE, 7)],
    ids=["a vector", "two vectors", "large", "large, two vectors", "large, between lines"],
)  # fmt: skip
def test_windows_and_their_gradient(
    outer: int, inner: int, b: int, apart: int, window_size: int
) -> None:
    g = np.array(matrices(window_size)[2])
    w = normal(outer, inner, window_size, window_size, b, b)
    inputs, outputs = inner * b, outer * b
    plain = w.transpose(1, 4, 0, 5, 2, 3).reshape(inputs, outputs, window_size, window_size)
    expected = transformed(g, plain)
    for spread, turned in ((kernels.spread_windows, False), (kernels.spread_turned_windows, True)):
        shape = (outputs, inputs) if turned else (inputs, outputs)
        flat, step = operand(*shape, apart=apart)
        spread(w, flat, step)
        found = matrices_of(flat, step, *shape)
        found = found.transpose(0, 2, 1) if turned else found
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)

    u, before = normal(PRODUCTS, inputs, outputs), normal(*w.shape)
    after = before.copy()
    flat, step = operand(inputs, outputs, u)
    kernels.gather_windows(flat, after, step)
    back = np.einsum("ia,ijxy,jb->xyab", g, u.reshape(6, 6, *u.shape[1:]), g, optimize=True)
    expected = back.reshape(inner, b, outer, b, window_size, window_size)
    expected = expected.transpose(2, 0, 4, 5, 1, 3)
    np.testing.assert_allclose(after - before, expected, rtol=1e-4, atol=1e-4)


# Plans.


def plan(shape: tuple[int, ...], outputs: int, geometry: Window, groups: int = 1) -> Any:
    """A convolution on the blocked output of another."""
    backend = onednn.OneDNNBackend(1)
    x = blob(backend, shape)
    one = blob(backend, (shape[1], shape[1], 1, 1))
    backend.convolution(blob(backend, shape), one, None, x, window((1, 1)), 1)
    case = Conv(shape, outputs, geometry, groups)
    y, w, b = (blob(backend, s) for s in (case.out, case.weights, (outputs,)))
    return backend.convolution(x, w, b, y, geometry, groups)


SAME, WIDE = window((3, 3), 1, 1), window((5, 5), 1, 2)


@pytest.mark.parametrize(
    ("shape", "outputs", "geometry", "groups", "used"),
    [
        ((8, 64, 28, 28), 96, SAME, 1, True),
        ((1, 64, 56, 56), 64, SAME, 1, True),
        ((8, 64, 28, 28), 96, window((3, 3)), 1, True),
        ((4, 96, 27, 27), 256, WIDE, 1, True),
        ((8, 384, 13, 13), 256, SAME, 2, True),
        ((8, 96, 27, 27), 256, WIDE, 2, True),
        ((8, 64, 28, 28), 64, SAME, 16, False),
        ((8, 64, 28, 28), 96, window((3, 3), 2, 1), 1, False),
        ((8, 64, 28, 28), 96, window((3, 3), 1, 2, 2), 1, False),
        ((8, 64, 28, 28), 96, window((3, 3), (1, 2), 1), 1, False),
        ((8, 64, 28, 28), 96, window((3, 5), 1, 1), 1, False),
        ((8, 64, 28, 28), 96, window((7, 7), 1, 3), 1, False),
        ((8, 8, 28, 28), 8, SAME, 1, False),  # more work for the transforms than it saves
        ((1, 512, 4, 4), 512, SAME, 1, False),  # all of it for the weights
        ((8, 60, 28, 28), 96, SAME, 1, False),  # not in whole vectors
    ],
)
def test_it_is_used_where_it_pays(
    shape: tuple[int, ...], outputs: int, geometry: Window, groups: int, used: bool
) -> None:
    assert isinstance(plan(shape, outputs, geometry, groups), plans.Winograd) == used


def test_not_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "available", lambda: False)
    assert not isinstance(plan((8, 64, 28, 28), 96, SAME), plans.Winograd)


def results(made: Any, x: Array, w: Array, dy: Array) -> list[Array]:
    made.x.data[...], made.w.data[...] = x, w
    made.forward()
    made.y.diff[...] = dy
    made.w.gradient.clear()
    made.backward(True, True, True)
    return [made.y.data.copy(), made.x.diff.copy(), made.w.diff.copy(), made.b.diff.copy()]


def exact(x: Array, w: Array, dy: Array) -> list[Array]:
    """y, dx, dw and db of a window that is padded by half its size, in double precision."""
    size, (rows, columns) = w.shape[2], x.shape[2:]
    half = size // 2
    border = ((0, 0), (0, 0), (half, half), (half, half))
    wide = np.pad(x.astype(float), border)
    y, dx, dw = np.zeros(dy.shape), np.zeros(wide.shape), np.zeros(w.shape)
    for i in range(size):
        for j in range(size):
            part = wide[:, :, i : i + rows, j : j + columns]
            y += np.einsum("nchw,oc->nohw", part, w[:, :, i, j], optimize=True)
            back = np.einsum("nohw,oc->nchw", dy, w[:, :, i, j].astype(float), optimize=True)
            dx[:, :, i : i + rows, j : j + columns] += back
            dw[:, :, i, j] = np.einsum("nohw,nchw->oc", dy, part, optimize=True)
    return [y, dx[:, :, half:-half, half:-half], dw, dy.sum((0, 2, 3), dtype=float)]


@pytest.mark.parametrize("geometry", [SAME, WIDE], ids=["3x3", "5x5"])
def test_it_differs_by_rounding_only(geometry: Window) -> None:
    """Some ten units in the last place of the largest result, where a plain sum has one or two."""
    x, w, dy = normal(4, 128, 28, 28), normal(96, 128, *geometry.kernel), normal(4, 96, 28, 28)
    made = plan((4, 128, 28, 28), 96, geometry)
    assert isinstance(made, plans.Winograd)
    for found, expected in zip(results(made, x, w, dy), exact(x, w, dy), strict=True):
        error = np.abs(found - expected)
        assert error.max() < 5e-6 * np.abs(expected).max()
        assert np.sqrt((error**2).mean()) < 2e-6 * np.sqrt((expected**2).mean())


@pytest.mark.parametrize("some", [1, 700_000, 1_400_000, 10**9])
@pytest.mark.parametrize("geometry", [SAME, WIDE], ids=["3x3", "5x5"])
def test_chunks_and_slices_change_nothing_but_memory(
    monkeypatch: pytest.MonkeyPatch, geometry: Window, some: int
) -> None:
    """One row of tiles and one block of outputs, parts of an image, images, the whole batch."""
    x, w, dy = normal(2, 64, 48, 40), normal(64, 64, *geometry.kernel), normal(2, 64, 48, 40)
    monkeypatch.setattr(plans, "CHUNK", dict.fromkeys(plans.CHUNK, some))
    monkeypatch.setattr(plans, "SLICE", dict.fromkeys(plans.SLICE, some // 10))
    made = plan((2, 64, 48, 40), 64, geometry)
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
    layers: list[Any] = net.layers[1:]
    used = [isinstance(layer._plans[0][0], plans.Winograd) for layer in layers]
    assert used == [False, True, False, True]
