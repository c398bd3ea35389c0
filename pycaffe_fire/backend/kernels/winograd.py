"""Winograd's convolution: windows of 3x3 or 5x5, stride 1, in tiles of 4x4 or 2x2 results.

    Y = A^T [(G w G^T) * (B^T x B)] A

where x is the 6x6 patch that a tile Y comes from, and * multiplies element by element. Summed over
channels, that makes 36 matrix products with a quarter of the direct method's multiplications (a
third for 5x5). Their operands are V (of x), U (of w) and M (of y), arrays (36, tiles or inputs,
channels); the `steps` of V and M are their first two strides, the `step` of U is its first.
Gradients take the same way back, with the matrices transposed.

Images are (N, C/b, H, W, b), weights (O/b, I/b, k, k, b, b) with the outputs last. A call takes
some rows of tiles; its `place` says which: the first, counted through all images, and how many,
then how many rows and columns of tiles an image has, and the side of a tile. V and M may have a
part of an image's channels: `held` is the first block and how many. Pixels are copied to a narrow
band with a border of zeros, so that no tile is an exception.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import fast_kernel, fast_part, inlined
from ..instructions import (
    ALIGNMENT,
    at,
    clear,
    copy,
    empty,
    finish_streams,
    free,
    goes_past,
    max,
    min,
)
from ..tasks import in_parallel
from .joined import rectified_body
from .sweeps import WHOLE, sweep
from .tiles import LANES, Matrix, adding_transform, biased_transform, summing_transform, transform

PATCH = 6  # side of the part of x that makes a tile
PRODUCTS = PATCH * PATCH
TILES = {3: 4, 5: 2}  # side of a tile, by that of the window
LINES = 4 * WHOLE == ALIGNMENT  # is a vector of U a line of the cache? Parts should not go past it
NO_IMAGES = np.empty((0, 0, 0, 0, 0), np.float32)
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
_window_to_u_3, _window_past_3 = transform(_G3, WHOLE), transform(_G3, WHOLE, past=True)
_window_to_u_5, _window_past_5 = transform(_G5, WHOLE), transform(_G5, WHOLE, past=True)
_u_to_window_3 = adding_transform(_turned(_G3), WHOLE)
_u_to_window_5 = adding_transform(_turned(_G5), WHOLE)
_plain_to_u_3, _u_to_plain_3 = transform(_G3), adding_transform(_turned(_G3))
_plain_to_u_5, _u_to_plain_5 = transform(_G5), adding_transform(_turned(_G5))


# What is done with every pixel of a row; see Body in sweeps.py.


def _rectify_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    """Without a slope even minus infinity becomes 0; NaN stays."""
    (value,) = read
    below = at.where(slope, "==", at.zero, at.zero, at.times(slope, value))
    return [at.where(value, "<=", at.zero, below, value)], []


def _add_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    there, line = read
    return [at.plus(there, line)], []


def _add_rectified_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    there, line, value = read
    return rectified_body(at, (at.plus(there, line), value), tables, sums, slope)


_rectify, _put_rectified = sweep(_rectify_body, 1), sweep(rectified_body, 2)
_add, _add_rectified = sweep(_add_body, 2), sweep(_add_rectified_body, 3)


@inlined
def _copy_rows(
    image: Any, height: int, length: int, first: int, left: int, band: Any, rows: int, width: int
) -> None:
    """band (rows, width) = rows of an image (height, length) from `first` on, moved to the right by
    `left`; 0 outside."""
    for k in range(rows):
        line, y = at(band, k * width), first + k
        if 0 <= y < height:
            clear(line, left)
            copy(at(image, y * length), at(line, left), length)
            clear(at(line, left + length), width - left - length)
        else:
            clear(line, width)


@fast_part
def _spread_patches(task: int, x: Any, v: Any, steps: Any, place: Any, held: Any, pad: Any) -> None:
    (first, _, rows, columns, tile), (step, along) = place, steps
    (first_block, blocks), height, b = held, x.shape[2], x.shape[4]
    width, length = (tile * columns + PATCH - tile) * b, x.shape[3] * b
    row, o = first + task // blocks, task % blocks
    band, plane = empty(PATCH * width, np.float32), row // rows * x.shape[1] + first_block + o
    _copy_rows(
        at(x, plane * height * length), height, length,
        tile * (row % rows) - pad[0], pad[1] * b, band, PATCH, width,
    )  # fmt: skip
    begin = task // blocks * columns * along + o * b
    for j in range(columns):
        for lane in range(0, b, LANES):
            _patch_to_v(
                band, tile * j * b + lane, width, b,
                v, begin + j * along + lane, PATCH * step, step,
            )  # fmt: skip
    free(band)


@fast_kernel(
    "f4[:,:,:,:,::1], f4[::1], UniTuple(i8, 2), UniTuple(i8, 5), UniTuple(i8, 2), UniTuple(i8, 2)"
)
def spread_patches(x: Any, v: Any, steps: Any, place: Any, held: Any, pad: Any) -> None:
    """V from x."""
    in_parallel(place[1] * held[1], _spread_patches, (x, v, steps, place, held, pad))


@inlined
def _put_line(line: Any, target: Any, values: Any, count: int, add: bool, rectify: bool) -> None:
    """target = line, or += it; then times 0 where values are not above 0, if wanted."""
    vectors, none = count // LANES, np.float32(0)
    if add and rectify:
        streams = (target, line, values, target)
        _add_rectified(streams, 0, vectors, LANES, (), 0, (), 0, none, False)
    elif add:
        _add((target, line, target), 0, vectors, LANES, (), 0, (), 0, none, False)
    elif rectify:
        _put_rectified((line, values, target), 0, vectors, LANES, (), 0, (), 0, none, False)
    else:
        copy(line, target, count)


@fast_part
def _gather_patches(
    task: int, v: Any, dx: Any, steps: Any, place: Any, held: Any, pad: Any, carried: Any,
    add: bool, x: Any,
) -> None:  # fmt: skip
    (first, count, rows, columns, tile), (step, along) = place, steps
    (first_block, blocks), height, b = held, dx.shape[2], dx.shape[4]
    overlap, left, length = PATCH - tile, pad[1] * b, dx.shape[3] * b
    width = (tile * columns + overlap) * b
    begin, o = task // blocks * rows, task % blocks
    band, kept = empty(PATCH * width, np.float32), at(carried, o * overlap * width)
    shared = overlap * width  # with the next row of tiles
    if (first + begin) % rows > 0:
        copy(kept, band, shared)
    else:
        clear(band, shared)
    for row in range(first + begin, first + begin + min(rows, count)):
        clear(at(band, shared), tile * width)
        source = (row - first) * columns * along + o * b
        for j in range(columns):
            for lane in range(0, b, LANES):
                _v_to_patch(
                    v, source + j * along + lane, PATCH * step, step,
                    band, tile * j * b + lane, width, b,
                )  # fmt: skip
        plane = (row // rows * dx.shape[1] + first_block + o) * height * length
        top = tile * (row % rows) - pad[0]
        for k in range(PATCH if row % rows == rows - 1 else tile):
            if 0 <= top + k < height:
                here = plane + (top + k) * length
                line = at(band, k * width + left)
                _put_line(line, at(dx, here), at(x, here), length, add, x.size > 0)
        last = at(band, tile * width)
        for i in range(shared):
            band[i] = last[i]
    if count < rows:
        copy(band, kept, shared)
    free(band)


@fast_kernel(
    "f4[::1], f4[:,:,:,:,::1], UniTuple(i8, 2), UniTuple(i8, 5), UniTuple(i8, 2), "
    "UniTuple(i8, 2), f4[:,:,::1], b1, f4[:,:,:,:,::1]"
)
def gather_patches(
    v: Any, dx: Any, steps: Any, place: Any, held: Any, pad: Any, carried: Any, add: bool, x: Any
) -> None:
    """The gradient of x from that of V, or dx += it; neighbouring patches overlap.

    The place is whole images, or equal parts of one in turn; `carried` (C/b, overlap, width) keeps
    what the last row of tiles has to say about the first pixels of the next. If x is not empty, dx
    is multiplied by 0 where that is not above 0, as in a ReLU.
    """
    tasks = max(1, place[1] // place[2]) * held[1]
    in_parallel(tasks, _gather_patches, (v, dx, steps, place, held, pad, carried, add, x))


@fast_part
def _gather_tiles(
    task: int, m: Any, y: Any, steps: Any, place: Any, held: Any, bias: Any, slope: Any
) -> None:
    (first, _, rows, columns, tile), (step, along) = place, steps
    (first_block, blocks), height, b = held, y.shape[2], y.shape[4]
    width, length = tile * columns * b, y.shape[3] * b
    row, o = first + task // blocks, task % blocks
    band = empty(tile * width, np.float32)
    begin = task // blocks * columns * along + o * b
    for j in range(columns):
        for lane in range(0, b, LANES):
            source, target = begin + j * along + lane, tile * j * b + lane
            channel = o * b + lane
            if tile == 4:
                _m_to_tile_3(m, source, PATCH * step, step, band, target, width, b, bias, channel)
            else:
                _m_to_tile_5(m, source, PATCH * step, step, band, target, width, b, bias, channel)
    plane = at(y, (row // rows * y.shape[1] + first_block + o) * height * length)
    top, past = tile * (row % rows), goes_past(y)
    for k in range(min(tile, height - top)):
        line, out = at(band, k * width), at(plane, (top + k) * length)
        _rectify((line, out), 0, length // LANES, LANES, (), 0, (), 0, slope, past)
    free(band)
    finish_streams()


@fast_kernel(
    "f4[::1], f4[:,:,:,:,::1], UniTuple(i8, 2), UniTuple(i8, 5), UniTuple(i8, 2), f4[::1], f4"
)
def gather_tiles(m: Any, y: Any, steps: Any, place: Any, held: Any, bias: Any, slope: Any) -> None:
    """y = A^T M A + bias, then a ReLU with this slope (1: none)."""
    in_parallel(place[1] * held[1], _gather_tiles, (m, y, steps, place, held, bias, slope))


@fast_part
def _spread_tiles(task: int, dy: Any, m: Any, steps: Any, place: Any, held: Any, sums: Any) -> None:
    (first, _, rows, columns, tile), (step, along) = place, steps
    (first_block, blocks), height, b = held, dy.shape[2], dy.shape[4]
    width, length = tile * columns * b, dy.shape[3] * b
    at_row, o = task // blocks, task % blocks
    row = first + at_row
    band, plane = empty(tile * width, np.float32), row // rows * dy.shape[1] + first_block + o
    _copy_rows(
        at(dy, plane * height * length), height, length,
        tile * (row % rows), 0, band, tile, width,
    )  # fmt: skip
    begin, channel = at_row * columns * along + o * b, (at_row * blocks + o) * b
    for j in range(columns):
        for lane in range(0, b, LANES):
            source, target = tile * j * b + lane, begin + j * along + lane
            if tile == 4:
                _tile_to_m_3(band, source, width, b, m, target, PATCH * step, step,
                             sums, channel + lane)  # fmt: skip
            else:
                _tile_to_m_5(band, source, width, b, m, target, PATCH * step, step,
                             sums, channel + lane)  # fmt: skip
    free(band)


@fast_kernel(
    "f4[:,:,:,:,::1], f4[::1], UniTuple(i8, 2), UniTuple(i8, 5), UniTuple(i8, 2), f4[:,::1]"
)
def spread_tiles(dy: Any, m: Any, steps: Any, place: Any, held: Any, sums: Any) -> None:
    """The gradient of M from that of y; sums[row] += its sum by channel."""
    in_parallel(place[1] * held[1], _spread_tiles, (dy, m, steps, place, held, sums))


@inlined
def _spread_window(
    source: Any, start: int, row: int, cell: int, size: int, u: Any, target: int, step: int,
    past: bool,
) -> None:  # fmt: skip
    """U of the windows of WHOLE channels; their rows and cells lie so far apart."""
    if size == 3 and past:
        _window_past_3(source, start, row, cell, u, target, PATCH * step, step)
    elif size == 3:
        _window_to_u_3(source, start, row, cell, u, target, PATCH * step, step)
    elif past:
        _window_past_5(source, start, row, cell, u, target, PATCH * step, step)
    else:
        _window_to_u_5(source, start, row, cell, u, target, PATCH * step, step)


@fast_part
def _spread_windows(task: int, w: Any, u: Any, step: int) -> None:
    outer, inner, size, b = w.shape[0], w.shape[1], w.shape[2], w.shape[4]
    o, i, area = task // inner, task % inner, b * b
    past = LINES and goes_past(u) and step % WHOLE == 0
    for k in range(b):
        for lane in range(0, b, WHOLE):
            start = task * size * size * area + k * b + lane
            target = ((i * b + k) * outer + o) * b + lane
            _spread_window(w, start, size * area, area, size, u, target, step, past)
    finish_streams()


@fast_kernel("f4[:,:,:,:,:,::1], f4[::1], i8")
def spread_windows(w: Any, u: Any, step: int) -> None:
    """U = G w G^T."""
    in_parallel(w.shape[0] * w.shape[1], _spread_windows, (w, u, step))


@fast_part
def _spread_turned_windows(task: int, w: Any, u: Any, step: int) -> None:
    outer, inner, size, b = w.shape[0], w.shape[1], w.shape[2], w.shape[4]
    i, o, area = task // outer, task % outer, b * b
    past = LINES and goes_past(u) and step % WHOLE == 0
    source = at(w, (o * inner + i) * size * size * area)
    turned = empty(size * size * area, np.float32)
    for cell in range(size * size):
        from_here, to_here = at(source, cell * area), at(turned, cell * area)
        for j in range(b):
            for k in range(b):
                to_here[j * b + k] = from_here[k * b + j]
    for j in range(b):
        for lane in range(0, b, WHOLE):
            target = ((o * b + j) * inner + i) * b + lane
            _spread_window(turned, j * b + lane, size * area, area, size, u, target, step, past)
    free(turned)
    finish_streams()


@fast_kernel("f4[:,:,:,:,:,::1], f4[::1], i8")
def spread_turned_windows(w: Any, u: Any, step: int) -> None:
    """The same with matrices (outputs, inputs): U transposed."""
    in_parallel(w.shape[0] * w.shape[1], _spread_turned_windows, (w, u, step))


@fast_part
def _gather_windows(task: int, u: Any, dw: Any, step: int) -> None:
    outer, inner, size, b = dw.shape[0], dw.shape[1], dw.shape[2], dw.shape[4]
    o, i, area = task // inner, task % inner, b * b
    for k in range(b):
        for lane in range(0, b, WHOLE):
            target = task * size * size * area + k * b + lane
            source = ((i * b + k) * outer + o) * b + lane
            if size == 3:
                _u_to_window_3(u, source, PATCH * step, step, dw, target, size * area, area)
            else:
                _u_to_window_5(u, source, PATCH * step, step, dw, target, size * area, area)


@fast_kernel("f4[::1], f4[:,:,:,:,:,::1], i8")
def gather_windows(u: Any, dw: Any, step: int) -> None:
    """dw += G^T dU G."""
    in_parallel(dw.shape[0] * dw.shape[1], _gather_windows, (u, dw, step))


@inlined
def _plain_windows(task: int, w: Any) -> Any:
    """The inputs of a task, and how far apart inputs and outputs of plain weights lie."""
    first = task * LANES
    area = w.shape[2] * w.shape[3]
    return first, min(first + LANES, w.shape[1]), area, w.shape[1] * area


@fast_part
def _spread_plain_windows(task: int, w: Any, u: Any, step: int) -> None:
    first, stop, area, far = _plain_windows(task, w)
    outputs, size = w.shape[0], w.shape[2]
    window = empty(area * LANES, np.float32)
    for o in range(0, outputs, LANES):
        for i in range(first, stop):
            source = at(w, o * far + i * area)
            for cell in range(area):
                for lane in range(LANES):
                    window[cell * LANES + lane] = source[lane * far + cell]
            target = i * outputs + o
            if size == 3:
                _plain_to_u_3(window, 0, size * LANES, LANES, u, target, PATCH * step, step)
            else:
                _plain_to_u_5(window, 0, size * LANES, LANES, u, target, PATCH * step, step)
    free(window)


@fast_kernel("f4[:,:,:,::1], f4[::1], i8, i8, i8")
def spread_plain_windows(w: Any, u: Any, step: int, first: int, stop: int) -> None:
    """U = G w G^T of weights (O, I, k, k), for inputs LANES * first up to LANES * stop."""
    for task in range(first, stop):
        _spread_plain_windows(task, w, u, step)


@fast_part
def _gather_plain_windows(task: int, u: Any, dw: Any, step: int) -> None:
    first, stop, area, far = _plain_windows(task, dw)
    outputs, size = dw.shape[0], dw.shape[2]
    window = empty(area * LANES, np.float32)
    for o in range(0, outputs, LANES):
        for i in range(first, stop):
            clear(window, area * LANES)
            source = i * outputs + o
            if size == 3:
                _u_to_plain_3(u, source, PATCH * step, step, window, 0, size * LANES, LANES)
            else:
                _u_to_plain_5(u, source, PATCH * step, step, window, 0, size * LANES, LANES)
            target = at(dw, o * far + i * area)
            for cell in range(area):
                for lane in range(LANES):
                    target[lane * far + cell] += window[cell * LANES + lane]
    free(window)


@fast_kernel("f4[::1], f4[:,:,:,::1], i8, i8, i8")
def gather_plain_windows(u: Any, dw: Any, step: int, first: int, stop: int) -> None:
    """dw += G^T dU G of weights (O, I, k, k), for inputs LANES * first up to LANES * stop."""
    for task in range(first, stop):
        _gather_plain_windows(task, u, dw, step)
