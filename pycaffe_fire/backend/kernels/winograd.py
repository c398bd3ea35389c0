"""Winograd's convolution: windows of 3x3 or 5x5, stride 1, in tiles of 4x4 or 2x2 results.

    Y = A^T [(G w G^T) * (B^T x B)] A

where x is the 6x6 patch that a tile Y comes from, and * multiplies element by element. Summed over
channels, that makes 36 matrix products with a quarter of the direct method's multiplications (a
third for 5x5). Their operands are V (of x), U (of w) and M (of y), arrays (36, tiles or inputs,
channels) whose first stride is `step`. Gradients take the same way back, with the matrices
transposed.

Images are (N, C/b, H, W, b), weights (O/b, I/b, k, k, b, b) with the outputs last. A call takes
some rows of tiles; its `place` says which: the first, counted through all images, and how many,
then how many rows and columns of tiles an image has, and the side of a tile. V and M may have a
part of an image's channels: `held` is the first block and how many. Pixels are copied to a narrow
band with a border of zeros, so that no tile is an exception.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import parallel_jit, part, prange
from .tiles import LANES, Matrix, adding_transform, biased_transform, summing_transform, transform

PATCH = 6  # side of the part of x that makes a tile
PRODUCTS = PATCH * PATCH
TILES = {3: 4, 5: 2}  # side of a tile, by that of the window
# Of the simple fractions these lose the fewest digits, half as many as 1 and 2 would.
POINTS = (0.0, 0.625, -0.625, 1.5, -1.5)


def matrices(window: int) -> tuple[Matrix, Matrix, Matrix]:
    """A, B and G for evaluating polynomials at the points and at infinity (Toom and Cook)."""

    def powers(count: int) -> Any:
        return np.array(
            [[p**i for i in range(count)] for p in POINTS] + [[0.0] * (count - 1) + [1]]
        )

    a, g, b = powers(TILES[window]), powers(window), np.zeros((PATCH, PATCH))
    for i, point in enumerate(POINTS):
        others = [p for p in POINTS if p != point]
        g[i] /= np.prod([point - p for p in others])
        b[:-1, i] = np.poly(others)[::-1]
    b[:, -1] = np.poly(POINTS)[::-1]
    return a.tolist(), b.tolist(), g.tolist()


def _turned(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


_A3, _B, _G3 = matrices(3)
_A5, _, _G5 = matrices(5)
_patch_to_v, _v_to_patch = transform(_turned(_B)), adding_transform(_B)
_m_to_tile_3, _tile_to_m_3 = biased_transform(_turned(_A3)), summing_transform(_A3)
_m_to_tile_5, _tile_to_m_5 = biased_transform(_turned(_A5)), summing_transform(_A5)
_window_to_u_3, _u_to_window_3 = transform(_G3), adding_transform(_turned(_G3))
_window_to_u_5, _u_to_window_5 = transform(_G5), adding_transform(_turned(_G5))


@part
def _copy_rows(image: Any, first: int, left: int, band: Any) -> None:
    """band = rows of an image (H, W b) from `first` on, moved to the right by `left`; 0 outside."""
    height, width = image.shape
    for k in range(band.shape[0]):
        if 0 <= first + k < height:
            band[k, :left] = 0
            band[k, left : left + width] = image[first + k]
            band[k, left + width :] = 0
        else:
            band[k] = 0


@part
def _activate(source: Any, slope: Any, target: Any) -> None:
    """ReLU; without a slope even minus infinity and its like become 0, and NaN stays."""
    leaks = slope != 0
    for i in range(target.size):
        value = source[i]
        below = slope * value if leaks else np.float32(0)
        target[i] = below if value <= 0 else value


@parallel_jit
def spread_patches(x: Any, v: Any, step: int, place: Any, held: Any, pad: Any) -> None:
    """V from x."""
    first, count, rows, columns, tile = place
    (first_block, blocks), b = held, x.shape[4]
    channels, width = blocks * b, (tile * columns + PATCH - tile) * b
    for task in prange(count * blocks):
        at, o = task // blocks, task % blocks
        image, row = (first + at) // rows, (first + at) % rows
        band = np.empty((PATCH, width), np.float32)
        plane = x[image, first_block + o].reshape(x.shape[2], -1)
        _copy_rows(plane, tile * row - pad[0], pad[1] * b, band)
        for j in range(columns):
            for lane in range(0, b, LANES):
                _patch_to_v(
                    band.reshape(-1), tile * j * b + lane, width, b,
                    v, (at * columns + j) * channels + o * b + lane, PATCH * step, step,
                )  # fmt: skip


@parallel_jit
def gather_patches(
    v: Any, dx: Any, step: int, place: Any, held: Any, pad: Any, carried: Any, add: bool
) -> None:
    """The gradient of x from that of V, or dx += it; neighbouring patches overlap.

    The place is whole images, or equal parts of one in turn; `carried` (C/b, overlap, width) keeps
    what the last row of tiles has to say about the first pixels of the next.
    """
    first, count, rows, columns, tile = place
    (first_block, blocks), height, b = held, dx.shape[2], dx.shape[4]
    overlap, left, length = PATCH - tile, pad[1] * b, dx.shape[3] * b
    channels, width = blocks * b, (tile * columns + overlap) * b
    for task in prange(max(1, count // rows) * blocks):
        begin, o = task // blocks * rows, task % blocks
        band = np.zeros((PATCH, width), np.float32)
        for at in range(begin, begin + min(rows, count)):
            image, row = (first + at) // rows, (first + at) % rows
            if row and at == begin:
                band[:overlap] = carried[o]
            for j in range(columns):
                for lane in range(0, b, LANES):
                    _v_to_patch(
                        v, (at * columns + j) * channels + o * b + lane, PATCH * step, step,
                        band.reshape(-1), tile * j * b + lane, width, b,
                    )  # fmt: skip
            plane = dx[image, first_block + o].reshape(height, -1)
            for k in range(PATCH if row == rows - 1 else tile):
                y = tile * row + k - pad[0]
                if 0 <= y < height:
                    source, target = band[k, left : left + length], plane[y]
                    if add:
                        for i in range(length):
                            target[i] += source[i]
                    else:
                        target[:] = source
            for k in range(overlap):
                band[k] = band[tile + k]
            band[overlap:] = 0
        if count < rows:
            carried[o] = band[:overlap]


@parallel_jit
def gather_tiles(m: Any, y: Any, step: int, place: Any, held: Any, bias: Any, slope: Any) -> None:
    """y = A^T M A + bias, then a ReLU with this slope (1: none)."""
    first, count, rows, columns, tile = place
    (first_block, blocks), height, b = held, y.shape[2], y.shape[4]
    channels, width = blocks * b, tile * columns * b
    for task in prange(count * blocks):
        at, o = task // blocks, task % blocks
        image, row = (first + at) // rows, (first + at) % rows
        band = np.empty((tile, width), np.float32)
        flat = band.reshape(-1)
        for j in range(columns):
            for lane in range(0, b, LANES):
                source = (at * columns + j) * channels + o * b + lane
                target, channel = tile * j * b + lane, o * b + lane
                if tile == 4:
                    _m_to_tile_3(m, source, PATCH * step, step, flat, target, width, b,
                                 bias, channel)  # fmt: skip
                else:
                    _m_to_tile_5(m, source, PATCH * step, step, flat, target, width, b,
                                 bias, channel)  # fmt: skip
        plane = y[image, first_block + o].reshape(height, -1)
        for k in range(min(tile, height - tile * row)):
            _activate(band[k], slope, plane[tile * row + k])


@parallel_jit
def spread_tiles(dy: Any, m: Any, step: int, place: Any, held: Any, sums: Any) -> None:
    """The gradient of M from that of y; sums[row] += its sum by channel."""
    first, count, rows, columns, tile = place
    (first_block, blocks), b = held, dy.shape[4]
    channels, width = blocks * b, tile * columns * b
    for task in prange(count * blocks):
        at, o = task // blocks, task % blocks
        image, row = (first + at) // rows, (first + at) % rows
        band = np.empty((tile, width), np.float32)
        flat = band.reshape(-1)
        _copy_rows(dy[image, first_block + o].reshape(dy.shape[2], -1), tile * row, 0, band)
        for j in range(columns):
            for lane in range(0, b, LANES):
                source, channel = tile * j * b + lane, o * b + lane
                target = (at * columns + j) * channels + o * b + lane
                if tile == 4:
                    _tile_to_m_3(flat, source, width, b, m, target, PATCH * step, step,
                                 sums[at], channel)  # fmt: skip
                else:
                    _tile_to_m_5(flat, source, width, b, m, target, PATCH * step, step,
                                 sums[at], channel)  # fmt: skip


@parallel_jit
def spread_windows(w: Any, u: Any, step: int) -> None:
    """U = G w G^T."""
    outer, inner, size, b = w.shape[0], w.shape[1], w.shape[2], w.shape[4]
    flat, area = w.reshape(-1), b * b
    for task in prange(outer * inner):
        o, i = task // inner, task % inner
        for k in range(b):
            for lane in range(0, b, LANES):
                start = task * size * size * area + k * b + lane
                at = ((i * b + k) * outer + o) * b + lane
                if size == 3:
                    _window_to_u_3(flat, start, size * area, area, u, at, PATCH * step, step)
                else:
                    _window_to_u_5(flat, start, size * area, area, u, at, PATCH * step, step)


@parallel_jit
def gather_windows(u: Any, dw: Any, step: int) -> None:
    """dw += G^T dU G."""
    outer, inner, size, b = dw.shape[0], dw.shape[1], dw.shape[2], dw.shape[4]
    flat, area = dw.reshape(-1), b * b
    for task in prange(outer * inner):
        o, i = task // inner, task % inner
        for k in range(b):
            for lane in range(0, b, LANES):
                start = task * size * size * area + k * b + lane
                at = ((i * b + k) * outer + o) * b + lane
                if size == 3:
                    _u_to_window_3(u, at, PATCH * step, step, flat, start, size * area, area)
                else:
                    _u_to_window_5(u, at, PATCH * step, step, flat, start, size * area, area)
