"""Winograd's convolution: 3x3 windows, stride 1, in tiles of 4x4 results.

    Y = A^T [(G w G^T) * (B^T x B)] A

where x is the 6x6 tile that a 4x4 tile Y comes from, and * multiplies element by element. Summed
over channels, the products are 36 matrix products that do a quarter of the direct method's work.
Their operands are V (of x), U (of w) and M (of y), arrays (36, tiles or channels, channels) whose
first stride is `step`. Gradients take the same way back, with the matrices transposed.

Images are (N, C/b, H, W, b). A call takes some rows of tiles; its `place` says which: the first,
counted through all images, and how many, then how many rows and columns of tiles an image has.
Pixels are copied to a narrow band with a border of zeros, so that no tile is an exception.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import parallel_jit, part, prange
from .tiles import LANES, Matrix, adding_transform, biased_transform, summing_transform, transform

WINDOW, TILE = 3, 4
PATCH = TILE + WINDOW - 1  # side of the tile of x
PRODUCTS = PATCH * PATCH


def matrices(points: tuple[float, ...]) -> tuple[Matrix, Matrix, Matrix]:
    """A, B and G for evaluating polynomials at these points and at infinity (Toom and Cook)."""
    a = np.array([[p**i for i in range(TILE)] for p in points] + [[0.0] * (TILE - 1) + [1.0]])
    g = np.array([[p**i for i in range(WINDOW)] for p in points] + [[0.0] * (WINDOW - 1) + [1.0]])
    b = np.zeros((PATCH, PATCH))
    for i, point in enumerate(points):
        others = [p for p in points if p != point]
        g[i] /= np.prod([point - p for p in others])
        b[: PATCH - 1, i] = np.poly(others)[::-1]
    b[:, -1] = np.poly(points)[::-1]
    return a.tolist(), b.tolist(), g.tolist()


def _turned(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


# Of the simple fractions these lose the fewest digits, about half as many as 1 and 2 would.
A, B, G = matrices((0.0, 0.625, -0.625, 1.5, -1.5))

_patch_to_v, _v_to_patch = transform(_turned(B)), adding_transform(B)
_m_to_tile, _tile_to_m = biased_transform(_turned(A)), summing_transform(A)
_window_to_u, _u_to_window = transform(G), adding_transform(_turned(G))


@part
def _copy_rows(image: Any, first: int, pad: int, band: Any) -> None:
    """band = rows of an image (H, W b) from `first` on, `pad` elements to the right; 0 outside."""
    height, width = image.shape
    for k in range(band.shape[0]):
        if 0 <= first + k < height:
            source, target = image[first + k], band[k, pad : pad + width]
            for i in range(width):
                target[i] = source[i]
        else:
            band[k] = 0


@parallel_jit
def spread_patches(x: Any, v: Any, step: int, place: Any, pad: Any) -> None:
    """V from x."""
    first, count, rows, columns = place
    blocks, b = x.shape[1], x.shape[4]
    channels, width = blocks * b, (TILE * columns + 2) * b
    for task in prange(count):
        image, row = (first + task) // rows, (first + task) % rows
        band = np.zeros((PATCH, width), np.float32)
        for o in range(blocks):
            plane = x[image, o].reshape(x.shape[2], -1)
            _copy_rows(plane, TILE * row - pad[0], pad[1] * b, band)
            for j in range(columns):
                for lane in range(o * b, o * b + b, LANES):
                    _patch_to_v(
                        band.reshape(-1), TILE * j * b + lane - o * b, width, b,
                        v, (task * columns + j) * channels + lane, PATCH * step, step,
                    )  # fmt: skip


@parallel_jit
def gather_tiles(m: Any, y: Any, step: int, place: Any, bias: Any, slope: Any) -> None:
    """y = A^T M A + bias, then a ReLU with this slope (1: none)."""
    first, count, rows, columns = place
    blocks, height, b = y.shape[1], y.shape[2], y.shape[4]
    channels, width = blocks * b, TILE * columns * b
    for task in prange(count):
        image, row = (first + task) // rows, (first + task) % rows
        band = np.empty((TILE, width), np.float32)
        for o in range(blocks):
            for j in range(columns):
                for lane in range(o * b, o * b + b, LANES):
                    _m_to_tile(
                        m, (task * columns + j) * channels + lane, PATCH * step, step,
                        band.reshape(-1), TILE * j * b + lane - o * b, width, b, bias, lane,
                    )  # fmt: skip
            plane = y[image, o].reshape(height, -1)
            for k in range(min(TILE, height - TILE * row)):
                source, target = band[k], plane[TILE * row + k]
                for i in range(target.size):
                    value = source[i]
                    target[i] = value if value > 0 else slope * value


@parallel_jit
def spread_tiles(dy: Any, m: Any, step: int, place: Any, sums: Any) -> None:
    """The gradient of M from that of y; sums[row] += its sum by channel."""
    first, count, rows, columns = place
    blocks, b = dy.shape[1], dy.shape[4]
    channels, width = blocks * b, TILE * columns * b
    for task in prange(count):
        image, row = (first + task) // rows, (first + task) % rows
        band = np.zeros((TILE, width), np.float32)
        for o in range(blocks):
            _copy_rows(dy[image, o].reshape(dy.shape[2], -1), TILE * row, 0, band)
            for j in range(columns):
                for lane in range(o * b, o * b + b, LANES):
                    _tile_to_m(
                        band.reshape(-1), TILE * j * b + lane - o * b, width, b,
                        m, (task * columns + j) * channels + lane, PATCH * step, step,
                        sums.reshape(-1), task * channels + lane,
                    )  # fmt: skip


@parallel_jit
def gather_patches(v: Any, dx: Any, step: int, place: Any, pad: Any, carried: Any) -> None:
    """The gradient of x from that of V, where neighbouring patches overlap by two pixels.

    The place is whole images, or equal parts of one in turn; `carried` (C/b, 2, width) keeps what
    the last row of tiles has to say about the first pixels of the next.
    """
    first, count, rows, columns = place
    blocks, height, b = dx.shape[1], dx.shape[2], dx.shape[4]
    channels, width = blocks * b, (TILE * columns + 2) * b
    images = max(1, count // rows)
    left, length = pad[1] * b, dx.shape[3] * b
    for task in prange(images * blocks):
        part_of, o = task // blocks, task % blocks
        band = np.zeros((PATCH, width), np.float32)
        begin = part_of * rows
        for tile_row in range(begin, begin + min(rows, count)):
            image, row = (first + tile_row) // rows, (first + tile_row) % rows
            if row and tile_row == begin:
                band[:2] = carried[o]
            for j in range(columns):
                for lane in range(o * b, o * b + b, LANES):
                    _v_to_patch(
                        v, (tile_row * columns + j) * channels + lane, PATCH * step, step,
                        band.reshape(-1), TILE * j * b + lane - o * b, width, b,
                    )  # fmt: skip
            plane = dx[image, o].reshape(height, -1)
            for k in range(PATCH if row == rows - 1 else TILE):
                at = TILE * row + k - pad[0]
                if 0 <= at < height:
                    source, target = band[k, left : left + length], plane[at]
                    for i in range(length):
                        target[i] = source[i]
            band[:2] = band[TILE:]
            band[2:] = 0
        carried[o] = band[:2]


@parallel_jit
def spread_windows(w: Any, u: Any, step: int) -> None:
    """U = G w G^T; w is (O/b, I/b, 3, 3, b, b), its last axis counts outputs."""
    outer, inner, b = w.shape[0], w.shape[1], w.shape[4]
    area = b * b
    for task in prange(outer * inner):
        o, i, start = task // inner, task % inner, task * WINDOW * WINDOW * area
        for k in range(b):
            for lane in range(0, b, LANES):
                _window_to_u(
                    w.reshape(-1), start + k * b + lane, WINDOW * area, area,
                    u, ((i * b + k) * outer + o) * b + lane, PATCH * step, step,
                )  # fmt: skip


@parallel_jit
def gather_windows(u: Any, dw: Any, step: int) -> None:
    """dw += G^T dU G."""
    outer, inner, b = dw.shape[0], dw.shape[1], dw.shape[4]
    area = b * b
    for task in prange(outer * inner):
        o, i, start = task // inner, task % inner, task * WINDOW * WINDOW * area
        for k in range(b):
            for lane in range(0, b, LANES):
                _u_to_window(
                    u, ((i * b + k) * outer + o) * b + lane, PATCH * step, step,
                    dw.reshape(-1), start + k * b + lane, WINDOW * area, area,
                )  # fmt: skip
