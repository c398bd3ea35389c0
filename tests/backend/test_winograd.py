"""Winograd's method: its kernels on every instruction set and block size, and when it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pycaffe_fire as caffe
from pycaffe_fire import schema
from pycaffe_fire.backend.cpu.library import available, supported
from pycaffe_fire.backend.cpu.winograd import (
    PATCH,
    PRODUCTS,
    TILES,
    MToTiles,
    PatchesToV,
    Tiles,
    TilesToM,
    UToWindows,
    VToPatches,
    Windows,
    WindowsToU,
)
from pycaffe_fire.backend.onednn import winograd as plans
from pycaffe_fire.backend.plans import Window
from pycaffe_fire.backend.tensor import aligned
from pycaffe_fire.errors import BackendError
from tests.backend.op_cases import Array, Conv, blob, window
from tests.random_numbers import RNG

onednn = pytest.importorskip("pycaffe_fire.backend.onednn")
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not available(), reason="the CPU kernels are not compiled")


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


WINDOWS = pytest.mark.parametrize("window_size", TILES)
POINTS = (0.0, 0.625, -0.625, 1.5, -1.5)


def matrices(window: int) -> tuple[Array, Array, Array]:
    """A, B and G, for polynomials evaluated at the points and at infinity (Toom and Cook)."""

    def powers(count: int) -> Array:
        return np.array(
            [[p**i for i in range(count)] for p in POINTS] + [[0.0] * (count - 1) + [1]]
        )

    a, g, b = powers(TILES[window]), powers(window), np.zeros((PATCH, PATCH))
    for i, point in enumerate(POINTS):
        others = [p for p in POINTS if p != point]
        g[i] /= np.prod([point - p for p in others])
        b[:-1, i] = np.poly(others)[::-1]
    b[:, -1] = np.poly(POINTS)[::-1]
    return a, b, g


@WINDOWS
def test_matrices_give_a_correlation(window_size: int) -> None:
    a, b, g = matrices(window_size)
    x, w = RNG.standard_normal(PATCH), RNG.standard_normal(window_size)
    np.testing.assert_allclose(a.T @ ((g @ w) * (b.T @ x)), np.correlate(x, w), rtol=1e-11)


@WINDOWS
def test_numbers_of_the_transforms_have_no_rounding(window_size: int) -> None:
    for matrix in matrices(window_size)[:2]:
        np.testing.assert_array_equal(matrix.astype(np.float32), matrix)


# Kernels on images --------------------------------------------------------------------------------


class Case:
    """Images of `blocks` blocks of b channels, of which V and M have the last `held`.

    Tiles reach beyond the border, and calls take so many rows of tiles at a time.
    """

    def __init__(
        self, b: int, window: int, rows: int, columns: int, part: str = "images",
        images: int = 2, blocks: int = 3, held: int = 2, pad: tuple[int, int] | None = None,
        size: tuple[int, int] | None = None, threads: int = 2,
    ) -> None:  # fmt: skip
        self.b, self.size, self.tile, self.threads = b, window, TILES[window], threads
        self.a, self.b_matrix, self.g = matrices(window)
        self.rows, self.columns = rows, columns
        self.images, self.blocks, self.held = images, blocks, held
        self.count = {"part": 1, "image": rows, "images": images * rows}[part]
        self.pad = pad or (window // 2, window // 2)
        # As large as the tiles allow, less one: of x, and of y.
        more = PATCH - self.tile
        out = (self.tile * rows - 1, self.tile * columns - 1)
        self.out = size or out
        self.inside = tuple(n + more - 2 * p for n, p in zip(self.out, self.pad, strict=True))
        self.tiles, self.channels = images * rows * columns, held * b

    def x(self) -> Array:
        """With nothing but zeros in the blocks that V does not have."""
        return self._images(self.inside)

    def y(self) -> Array:
        return self._images(self.out)

    def _images(self, size: tuple[int, ...]) -> Array:
        made = normal(self.images, self.blocks, *size, self.b)
        made[:, : self.blocks - self.held] = 0
        return made

    def calls(self, kind: type[Tiles], images: Array, step: int, **more: Any) -> Iterator[Any]:
        """A kernel for every call that it takes to go through all rows of tiles."""
        for first in range(0, self.images * self.rows, self.count):
            yield kind(
                threads=self.threads, window=self.size, images=self.images,
                channel_blocks=self.blocks, height=images.shape[2], width=images.shape[3],
                block=self.b, pad_y=self.pad[0], pad_x=self.pad[1], rows=self.rows,
                columns=self.columns, first_row=first, row_count=self.count,
                first_block=self.blocks - self.held, block_count=self.held, product_step=step,
                tile_step=self.channels, **more,
            )  # fmt: skip

    def spread(self, kind: type[Tiles], source: str, images: Array, **more: Any) -> Array:
        """V or M of all tiles, (36, tiles, channels)."""
        tiles, parts = self.count * self.columns, []
        flat, step = operand(tiles, self.channels)
        target = "v" if kind is PatchesToV else "m"
        for kernel in self.calls(kind, images, step, **{source: images, target: flat}, **more):
            kernel.run()
            parts.append(matrices_of(flat, step, tiles, self.channels))
        return np.concatenate(parts, axis=1)

    def gather(
        self, kind: type[Tiles], target: str, values: Array, images: Array, **more: Any
    ) -> None:
        """Images from V or M of all tiles."""
        tiles = self.count * self.columns
        source = "v" if kind is VToPatches else "m"
        flat, step = operand(tiles, self.channels)
        for i, kernel in enumerate(self.calls(kind, images, step, **{target: images}, **more)):
            part = values[:, i * tiles : (i + 1) * tiles]
            setattr(kernel, source, operand(tiles, self.channels, part)[0])
            kernel.run()

    def carried(self) -> Array:
        length = (self.tile * (self.columns - 1) + PATCH) * self.b
        return np.full(self.held * (PATCH - self.tile) * length, np.nan, np.float32)

    def seen(self, images: Array, before: tuple[int, int], size: int) -> Array:
        """(tiles, channels, size, size): what each tile shows of its image, zeros outside."""
        held = images[:, self.blocks - self.held :]
        plain = held.transpose(0, 1, 4, 2, 3).reshape(self.images, self.channels, *held.shape[2:4])
        border = [(p, self.tile * n + PATCH) for p, n in zip(before, (self.rows, self.columns),
                                                             strict=True)]  # fmt: skip
        wide = np.pad(plain, ((0, 0), (0, 0), *border))
        return np.stack([
            image[:, y : y + size, x : x + size] for image in wide
            for y in range(0, self.rows * self.tile, self.tile)
            for x in range(0, self.columns * self.tile, self.tile)
        ])  # fmt: skip


SHAPES = {
    "parts of an image": dict(rows=3, columns=2, part="part"),
    "image by image": dict(rows=3, columns=2, part="image"),
    "all images": dict(rows=3, columns=2),
    "all channels": dict(rows=2, columns=3, blocks=2, held=2),
    "one image, one block": dict(rows=2, columns=1, images=1, blocks=1, held=1),
    "1x1 images": dict(rows=1, columns=1, size=(1, 1), images=3),
    "without pads": dict(rows=2, columns=2, pad=(0, 0)),
    "uneven pads": dict(rows=2, columns=3, pad=(0, 1)),
    "wide pads": dict(rows=2, columns=2, pad=(2, 3), part="part"),
}


@pytest.fixture(params=[8, 16, 24], ids=lambda b: f"blocks of {b}")
def b(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=SHAPES)
def case(b: int, window_size: int, isa: str, request: pytest.FixtureRequest) -> Case:
    return Case(b, window_size, **SHAPES[request.param])  # type: ignore[arg-type]


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
    """A copy: kernels go on writing into the memory. What lies between matrices is untouched."""
    between = flat.reshape(PRODUCTS, step)[:, rows * columns :]
    assert np.isnan(between).all()
    used = flat.reshape(PRODUCTS, step)[:, : rows * columns]
    return used.reshape(PRODUCTS, rows, columns).copy()


def transformed(matrix: Array, tiles: Array) -> Array:
    """(36, tiles, channels) of M tile M^T, in double precision."""
    made = np.einsum("ai,tcij,bj->abtc", matrix, tiles.astype(float), matrix, optimize=True)
    return made.reshape(PRODUCTS, *tiles.shape[:2])


def close(found: Array, expected: Array) -> None:
    """Equal but for rounding."""
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-6 * np.abs(expected).max())


@WINDOWS
def test_patches(case: Case) -> None:
    x = case.x()
    expected = transformed(case.b_matrix.T, case.seen(x, case.pad, PATCH))
    close(case.spread(PatchesToV, "x", x), expected)


@WINDOWS
@pytest.mark.parametrize("add", [False, True])
def test_gradient_of_patches_is_the_transpose(case: Case, add: bool) -> None:
    """Patches B dV B^T are added where they overlap."""
    v = normal(PRODUCTS, case.tiles, case.channels)
    before = case.x() if add else np.full_like(case.x(), np.nan)
    dx = before.copy()
    case.gather(VToPatches, "dx", v, dx, carried=case.carried(), add=int(add))
    others = slice(0, case.blocks - case.held)
    np.testing.assert_array_equal(dx[:, others], before[:, others])
    patches = np.einsum(
        "ia,abtc,jb->tcij", case.b_matrix, v.reshape(6, 6, *v.shape[1:]).astype(float),
        case.b_matrix, optimize=True,
    )  # fmt: skip
    tile, (rows, columns) = case.tile, (case.rows, case.columns)
    wide = np.zeros(
        (case.images, case.channels, tile * rows + PATCH - tile, tile * columns + PATCH - tile)
    )
    for number, patch in enumerate(patches):
        image, place = divmod(number, rows * columns)
        y, x = (tile * n for n in divmod(place, columns))
        wide[image, :, y : y + PATCH, x : x + PATCH] += patch
    (height, width), (top, left) = case.inside, case.pad
    inside = wide[:, :, top : top + height, left : left + width]
    expected = inside.reshape(case.images, case.held, case.b, height, width)
    expected = expected.transpose(0, 1, 3, 4, 2)
    if add:
        expected = expected + before[:, case.blocks - case.held :]
    close(dx[:, case.blocks - case.held :], expected)


@WINDOWS
@pytest.mark.parametrize("add", [False, True])
def test_gradient_of_patches_after_a_relu(case: Case, add: bool) -> None:
    v, before, values = normal(PRODUCTS, case.tiles, case.channels), case.x(), case.x()
    values[:, :, ::2] = np.maximum(values[:, :, ::2], 0)
    found = [before.copy(), before.copy()]
    for dx, x in zip(found, (None, values), strict=True):
        case.gather(VToPatches, "dx", v, dx, carried=case.carried(), add=int(add), x=x)
    plain, rectified = (each[:, case.blocks - case.held :] for each in found)
    is_on = values[:, case.blocks - case.held :] > 0
    np.testing.assert_array_equal(rectified, np.where(is_on, plain, 0))


def test_infinite_gradients_of_a_relu_become_nan(isa: str) -> None:
    case = Case(16, 3, 1, 1, images=1, blocks=1, held=1)
    v, dx = np.zeros((PRODUCTS, 1, 16), np.float32), case.x()
    v[14] = np.inf
    case.gather(VToPatches, "dx", v, dx, carried=case.carried(), x=np.zeros_like(dx))
    assert np.isnan(dx[0, 0, 1, 1]).all()


@WINDOWS
@pytest.mark.parametrize("slope", [0.0, 0.25, 1.0])
def test_tiles(case: Case, slope: float) -> None:
    m, bias = normal(PRODUCTS, case.tiles, case.channels), normal(case.channels)
    y = np.full_like(case.y(), np.nan)
    case.gather(MToTiles, "y", m, y, bias=bias, slope=slope)
    assert np.isnan(y[:, : case.blocks - case.held]).all()
    planes = m.reshape(6, 6, *m.shape[1:]).astype(float)
    made = np.einsum("ia,ijtc,jb->tcab", case.a, planes, case.a, optimize=True)
    expected = made + bias[:, None, None]
    expected = np.where(expected > 0, expected, slope * expected)
    inside = case.seen(np.ones_like(y), (0, 0), case.tile)
    close(case.seen(y, (0, 0), case.tile), expected * inside)


@WINDOWS
def test_a_relu_of_tiles_has_no_minus_zero_and_keeps_nan(
    b: int, window_size: int, isa: str
) -> None:
    case = Case(b, window_size, 3, 2)
    m, y = np.zeros((PRODUCTS, case.tiles, case.channels), np.float32), case.y()
    bias = np.ones(case.channels, np.float32)
    bias[:3] = -1, -np.inf, np.nan
    case.gather(MToTiles, "y", m, y, bias=bias, slope=0.0)
    np.testing.assert_array_equal(y[0, 1, 0, 0, :4], [0, 0, np.nan, 1])
    assert not np.signbit(y[0, 1, 0, 0, :2]).any()


@WINDOWS
def test_gradient_of_tiles(case: Case) -> None:
    dy, sums = case.y(), np.zeros((case.count, case.channels), np.float32)
    expected = transformed(case.a, case.seen(dy, (0, 0), case.tile))
    close(case.spread(TilesToM, "dy", dy, sums=sums), expected)
    held = dy[:, case.blocks - case.held :].astype(float)
    expected_sums = held.sum((0, 2, 3)).reshape(-1)
    np.testing.assert_allclose(sums.sum(0, dtype=float), expected_sums, rtol=1e-4, atol=1e-4)


@WINDOWS
@pytest.mark.parametrize("part", ["part", "images"])
def test_bits_do_not_depend_on_threads(b: int, window_size: int, isa: str, part: str) -> None:
    found = []
    template = Case(b, window_size, 3, 2)
    x, y, bias = template.x(), template.y(), normal(template.channels)
    v = normal(PRODUCTS, template.tiles, template.channels)
    for threads in (1, 2, 3):
        case = Case(b, window_size, 3, 2, part, threads=threads)
        sums = np.zeros((case.count, case.channels), np.float32)
        dx, out = np.zeros_like(x), np.zeros_like(y)
        made = [case.spread(PatchesToV, "x", x), case.spread(TilesToM, "dy", y, sums=sums)]
        case.gather(VToPatches, "dx", v, dx, carried=case.carried(), x=x)
        case.gather(MToTiles, "y", v, out, bias=bias, slope=0.5)
        found.append([*made, sums, dx, out])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@WINDOWS
def test_large_results_are_the_same(window_size: int, isa: str) -> None:
    """They are written past the caches."""
    small = Case(16, window_size, 12, 14, images=1, blocks=2, held=2)
    m = normal(PRODUCTS, small.tiles, small.channels)
    bias, y = normal(small.channels), small.y()
    small.gather(MToTiles, "y", m, y, bias=bias, slope=0.0)
    images = 2**20 // y.size + 1
    large = Case(16, window_size, 12, 14, "image", images=images, blocks=2, held=2)
    flat = aligned(images * y.size, np.dtype(np.float32))
    many = flat.reshape(images, *y.shape[1:])
    large.gather(MToTiles, "y", np.tile(m, (1, images, 1)), many, bias=bias, slope=0.0)
    np.testing.assert_array_equal(many, np.broadcast_to(y, many.shape))


# Kernels on weights -------------------------------------------------------------------------------


def window_kernel(
    kind: type[Windows], inputs: int, outputs: int, window: int, b: int, step: int,
    threads: int = 2, **more: Any,
) -> Any:  # fmt: skip
    return kind(
        threads=threads, outputs=outputs, inputs=inputs, window=window, block=b, product_step=step,
        **more,
    )  # fmt: skip


def plain_of(w: Array) -> Array:
    """(inputs, outputs, k, k) of weights in blocks, or of plain ones."""
    if w.ndim == 4:
        return w.swapaxes(0, 1)
    outer, inner, size, _, b, _ = w.shape
    return w.transpose(1, 4, 0, 5, 2, 3).reshape(inner * b, outer * b, size, size)


@WINDOWS
@pytest.mark.parametrize(
    ("outputs", "inputs", "b", "apart"),
    [(16, 24, 8, 7), (32, 16, 16, 7), (8, 8, 8, 0), (48, 96, 24, 7), (152, 216, 8, 16),
     (208, 320, 16, 16), (208, 320, 16, 7), (8, 3, 1, 7), (40, 16, 1, 7), (16, 1, 1, 0)],
    ids=["8", "16", "one block", "24", "large, 8", "large, 16", "large, between lines",
         "plain, 3 inputs", "plain", "plain, one input"],
)  # fmt: skip
def test_windows_and_their_gradient(
    outputs: int, inputs: int, b: int, apart: int, window_size: int, isa: str
) -> None:
    g = matrices(window_size)[2]
    shape: tuple[int, ...] = (outputs, inputs, window_size, window_size)
    if b > 1:
        shape = (outputs // b, inputs // b, window_size, window_size, b, b)
    w = normal(*shape)
    flat, step = operand(inputs, outputs, apart=apart)
    window_kernel(WindowsToU, inputs, outputs, window_size, b, step, w=w, u=flat).run()
    expected = transformed(g, plain_of(w))
    close(matrices_of(flat, step, inputs, outputs), expected)
    if b > 1:
        flat, step = operand(outputs, inputs, apart=apart)
        numbers = (inputs, outputs, window_size, b, step)
        window_kernel(WindowsToU, *numbers, w=w, u=flat, turned=1).run()
        close(matrices_of(flat, step, outputs, inputs), expected.swapaxes(1, 2))

    u, before = normal(PRODUCTS, inputs, outputs), normal(*shape)
    after = before.copy()
    flat, step = operand(inputs, outputs, u, apart)
    window_kernel(UToWindows, inputs, outputs, window_size, b, step, u=flat, dw=after).run()
    planes = u.reshape(6, 6, *u.shape[1:]).astype(float)
    back = np.einsum("ia,ijxy,jb->xyab", g, planes, g, optimize=True)
    close(plain_of(after), plain_of(before) + back)


@WINDOWS
@pytest.mark.parametrize("b", [1, 8, 16])
def test_bits_of_weights_do_not_depend_on_threads(b: int, window_size: int, isa: str) -> None:
    w, u = normal(48 * 48 * window_size**2), normal(PRODUCTS * 48 * 48)
    found = []
    for threads in (1, 2, 3):
        made, turned, dw = np.empty_like(u), np.zeros_like(u), np.zeros_like(w)
        numbers = (48, 48, window_size, b, 48 * 48, threads)
        window_kernel(WindowsToU, *numbers, w=w, u=made).run()
        if b > 1:
            window_kernel(WindowsToU, *numbers, w=w, u=turned, turned=1).run()
        window_kernel(UToWindows, *numbers, u=u, dw=dw).run()
        found.append((made, turned, dw))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


# Wrong plans --------------------------------------------------------------------------------------


def tiles_kernel(kind: type[Tiles], **changes: Any) -> Any:
    """A kernel on two images of 7x7 with two blocks of 8 channels, with all arrays it needs."""
    fields = dict(
        threads=1, window=3, images=2, channel_blocks=2, height=7, width=7, block=8, pad_y=1,
        pad_x=1, rows=2, columns=2, first_row=0, row_count=4, first_block=0, block_count=2,
        product_step=8 * 16, tile_step=16,
    )  # fmt: skip
    arrays = {
        name: np.zeros(size, np.float32)
        for name, size in dict(
            x=2 * 2 * 49 * 8, v=36 * 8 * 16, dx=2 * 2 * 49 * 8, carried=2 * 2 * 10 * 8,
            m=36 * 8 * 16, y=2 * 2 * 49 * 8, bias=16, dy=2 * 2 * 49 * 8, sums=4 * 16,
        ).items()
        if name in kind.fields
    }  # fmt: skip
    return kind(**{**fields, **arrays, **changes})


IMAGE_KERNELS = pytest.mark.parametrize("kind", [PatchesToV, VToPatches, MToTiles, TilesToM])


@IMAGE_KERNELS
def test_arrays_are_exactly_as_large_as_they_must_be(kind: type[Tiles]) -> None:
    kernel = tiles_kernel(kind)
    kernel.run()
    for name in ("x", "v", "dx", "carried", "m", "y", "bias", "dy", "sums"):
        if name in kind.fields:
            kernel = tiles_kernel(kind)
            setattr(kernel, name, getattr(kernel, name)[:-1])
            with pytest.raises(BackendError, match=f"kernel {kind.name}: {name} has .* elements"):
                kernel.run()


@IMAGE_KERNELS
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"window": 4}, "window 4"),
        ({"block": 12}, "blocks of 12 channels"),
        ({"block": 0}, "blocks of 0 channels"),
        ({"rows": 1, "row_count": 2}, "1 x 2 tiles"),
        ({"columns": 1}, "2 x 1 tiles"),
        ({"first_row": 1}, "rows of tiles 1 to 5 of 4"),
        ({"first_row": -2}, "rows of tiles -2 to 2 of 4"),
        ({"row_count": 0}, "rows of tiles 0 to 0 of 4"),
        ({"first_block": 1}, "blocks of channels 1 to 3 of 2"),
        ({"tile_step": 8}, "16 channels with steps of 128, 8"),
        ({"product_step": 8}, "16 channels with steps of 8, 16"),
    ],
)
def test_wrong_places_are_refused(kind: type[Tiles], changes: dict[str, int], message: str) -> None:
    with pytest.raises(BackendError, match=f"kernel {kind.name}: does not support .*{message}"):
        tiles_kernel(kind, **changes).run()


@pytest.mark.parametrize("kind", [PatchesToV, VToPatches])
@pytest.mark.parametrize("pads", [{"pad_y": -1}, {"pad_x": -1}, {"pad_y": 4}, {"pad_x": 4}])
def test_wrong_pads_are_refused(kind: type[Tiles], pads: dict[str, int]) -> None:
    with pytest.raises(BackendError, match="tiles, moved by"):
        tiles_kernel(kind, **pads).run()


@pytest.mark.parametrize(("first", "count"), [(1, 2), (1, 3), (0, 3)])
def test_parts_of_several_images_are_refused(first: int, count: int) -> None:
    with pytest.raises(BackendError, match=f"{count} rows of tiles from {first} on, in parts"):
        tiles_kernel(VToPatches, first_row=first, row_count=count).run()


@pytest.mark.parametrize("kind", [WindowsToU, UToWindows])
@pytest.mark.parametrize(
    "changes",
    [{"window": 7}, {"outputs": 12}, {"inputs": 12}, {"block": 4}, {"block": 0}, {"inputs": 0},
     {"block": 1, "outputs": 4}, {"product_step": 63}],
)  # fmt: skip
def test_wrong_weights_are_refused(kind: type[Windows], changes: dict[str, int]) -> None:
    fields = {"outputs": 8, "inputs": 8, "window": 3, "block": 8, "product_step": 64, **changes}
    arrays = {name: np.zeros(10**5, np.float32) for name in ("w", "u", "dw") if name in kind.fields}
    with pytest.raises(BackendError, match=f"kernel {kind.name}: does not support window"):
        kind(threads=1, **fields, **arrays).run()


def test_plain_weights_are_not_turned() -> None:
    w, u = np.zeros(8 * 8 * 9, np.float32), np.zeros(36 * 64, np.float32)
    with pytest.raises(BackendError, match="does not support plain weights, turned"):
        window_kernel(WindowsToU, 8, 8, 3, 1, 64, w=w, u=u, turned=1).run()


@pytest.mark.parametrize("kind", [WindowsToU, UToWindows])
def test_arrays_of_weights_are_large_enough(kind: type[Windows]) -> None:
    weights = "w" if kind is WindowsToU else "dw"
    for short in (weights, "u"):
        sizes = {weights: 8 * 8 * 9, "u": 36 * 64}
        arrays: dict[str, Any] = {name: np.zeros(n, np.float32) for name, n in sizes.items()}
        arrays[short] = arrays[short][:-1]
        with pytest.raises(BackendError, match=f"{short} has"):
            window_kernel(kind, 8, 8, 3, 8, 64, **arrays).run()


# Plans --------------------------------------------------------------------------------------------


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


def test_not_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_it_differs_by_rounding_only(isa: str, geometry: Window) -> None:
    """Some ten units in the last place of the largest result, where a plain sum has one or two."""
    x, w, dy = normal(4, 128, 28, 28), normal(96, 128, *geometry.kernel), normal(4, 96, 28, 28)
    made = plan((4, 128, 28, 28), 96, geometry)
    assert isinstance(made, plans.Winograd)
    for found, expected in zip(results(made, x, w, dy), exact(x, w, dy), strict=True):
        error = np.abs(found - expected)
        assert error.max() < 5e-6 * np.abs(expected).max()
        assert np.sqrt((error**2).mean()) < 2e-6 * np.sqrt((expected**2).mean())


BLOCKS_OF_8 = """
import numpy as np
from tests.backend.test_winograd import SAME, exact, normal, plan, plans, results

x, w, dy = normal(2, 64, 28, 28), normal(64, 64, 3, 3), normal(2, 64, 28, 28)
made = plan(x.shape, 64, SAME)
assert isinstance(made, plans.Winograd) and made._block == 8
for found, expected in zip(results(made, x, w, dy), exact(x, w, dy), strict=True):
    np.testing.assert_allclose(found, expected, atol=5e-6 * np.abs(expected).max())
"""


@pytest.mark.skipif(
    available() and "avx2" not in supported(), reason="oneDNN has no blocks of 8 here"
)
def test_blocks_of_8_channels_on_any_instruction_set() -> None:
    """Those that oneDNN has with AVX2, also on the widest vectors of the kernels."""
    subprocess.run(
        [sys.executable, "-c", BLOCKS_OF_8], check=True, timeout=300, cwd=ROOT,
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
    )  # fmt: skip


@pytest.mark.parametrize("some", [1, 700_000, 1_400_000, 10**9])
@pytest.mark.parametrize("geometry", [SAME, WIDE], ids=["3x3", "5x5"])
def test_chunks_and_slices_change_nothing_but_memory(
    isa: str, monkeypatch: pytest.MonkeyPatch, geometry: Window, some: int
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
