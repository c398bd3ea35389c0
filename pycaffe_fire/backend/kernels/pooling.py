"""MAX pooling: maxima in which NaN wins, where oneDNN passes over it, and the gradient from the
recorded winners, several times as fast as oneDNN's.

A winner is the number of the kernel cell that held the maximum, in row-major order; or SILENT more,
where our forward found a maximum that is not above 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiled import fast_kernel, fast_part
from ..instructions import at, clear, empty, free, max, min
from ..tasks import in_parallel
from .maxima import SILENT, max_of_window
from .sweeps import WHOLE

if TYPE_CHECKING:
    from ..plans import Window

_PLANES, _PAIR = "f4[:,:,:,::1], u1[:,:,:,::1], f4[:,:,:,::1]", "UniTuple(i8, 2)"
UNROLLED = ((2, 2), (3, 3))  # kernels whose maxima take less time here than in the library
LIKE_OTHERS, AS_IN_A_RELU = np.float32(1), np.float32(0)  # what SILENT winners get

_max_of_2, _max_of_3 = (max_of_window(1, WHOLE, size, marks=True) for size in UNROLLED)
_max_of_some = max_of_window(1, WHOLE, marks=True)


@fast_part
def _maxima(task: int, x: Any, y: Any, winners: Any, kernel: Any, stride: Any, pad: Any) -> None:
    (_, height, width, b), (rows, columns) = x.shape, y.shape[1:3]
    plane, i = task // rows, task % rows
    top = i * stride[0] - pad[0]
    first_row, stop_row = max(top, 0), min(top + kernel[0], height)
    strides, none = (width * b, b), (0, 0)
    for j in range(columns):
        left, place = j * stride[1] - pad[1], (task * columns + j) * b
        first, stop = max(left, 0), min(left + kernel[1], width)
        corner = ((plane * height + first_row) * width + first) * b
        size = (stop_row - first_row, stop - first)
        inside = size[0] == kernel[0] and size[1] == kernel[1]
        cells = (first_row - top) * kernel[1] + first - left, kernel[1]
        for lane in range(0, b, WHOLE):
            start, to = corner + lane, place + lane
            if inside and kernel[0] == 3:
                _max_of_3(x, start, strides, none, none, y, winners, to)
            elif inside:
                _max_of_2(x, start, strides, none, none, y, winners, to)
            else:
                _max_of_some(x, start, strides, size, cells, y, winners, to)


@fast_kernel(f"f4[:,:,:,::1], f4[:,:,:,::1], u1[:,:,:,::1], {_PAIR}, {_PAIR}, {_PAIR}")
def maxima(x: Any, y: Any, winners: Any, kernel: Any, stride: Any, pad: Any) -> None:
    """y = the maxima of clipped windows, one of UNROLLED, and the winners; arrays are (planes,
    height, width, inner channels), of which there are a multiple of WHOLE."""
    in_parallel(y.shape[0] * y.shape[1], _maxima, (x, y, winners, kernel, stride, pad))


@fast_part
def _collect(slopes: Any, winners: Any, n: int, cell: int, jump: int, b: int, out: Any) -> None:
    """out += what three neighbouring cells of a kernel row won; source = target - jump."""
    one, two, three = np.uint8(cell), np.uint8(cell + 1), np.uint8(cell + 2)
    first, stop = max(0, jump + 2 * b), n + min(0, jump)  # where all three have a source
    target, far = at(out, first), first - jump
    g1, g2, g3 = at(slopes, far), at(slopes, far - b), at(slopes, far - 2 * b)
    w1, w2, w3 = at(winners, far), at(winners, far - b), at(winners, far - 2 * b)
    for i in range(stop - first):
        a, c, d = g1[i], g2[i], g3[i]
        total = a if w1[i] == one else np.float32(0)
        total += c if w2[i] == two else np.float32(0)
        total += d if w3[i] == three else np.float32(0)
        target[i] += total
    for k in range(3):
        by = jump + k * b
        for i in range(max(0, by), first):
            if winners[i - by] == cell + k:
                out[i] += slopes[i - by]
        for i in range(stop, min(n, n + by)):
            if winners[i - by] == cell + k:
                out[i] += slopes[i - by]


@fast_part
def _collect_plane(plane: int, dy: Any, winners: Any, dx: Any, pad: Any) -> None:
    _, height, width, b = dx.shape
    size = height * width * b
    slopes, cells, out = at(dy, plane * size), at(winners, plane * size), at(dx, plane * size)
    clear(out, size)
    # One long loop over the plane for each kernel row. It runs on over the ends of rows, which is
    # harmless: a cell outside the image never wins, but in a window of NaN.
    for row in range(3):
        jump = ((row - pad[0]) * width - pad[1]) * b
        _collect(slopes, cells, size, 3 * row, jump, b, out)


@fast_kernel(f"{_PLANES}, {_PAIR}")
def dense_max_backward(dy: Any, winners: Any, dx: Any, pad: Any) -> None:
    """dx = dy brought to the winners, for a kernel of 3x3 and stride 1 and images of one size. None
    is SILENT."""
    in_parallel(dx.shape[0], _collect_plane, (dy, winners, dx, pad))


@fast_part
def _scatter_plane(
    plane: int, dy: Any, winners: Any, dx: Any, kernel: Any, stride: Any, pad: Any, jump: Any,
    share: Any,
) -> None:  # fmt: skip
    """One slope at a time."""
    _, height, width, b = dx.shape
    rows, columns, below = dy.shape[1], dy.shape[2], height * width * b
    first, out = plane * rows * columns * b, at(dx, plane * below)
    area = kernel[0] * kernel[1]
    clear(out, below)
    for i in range(rows):
        top = i * stride[0] - pad[0]
        for j in range(columns):
            left, here = j * stride[1] - pad[1], first + (i * columns + j) * b
            corner = at(out, (top * width + left) * b)
            slopes, cells = at(dy, here), at(winners, here)
            inside = top >= 0 and left >= 0
            if inside and top + kernel[0] <= height and left + kernel[1] <= width:
                for c in range(b):
                    corner[jump[cells[c]] + c] += slopes[c] * share[cells[c]]
            else:  # a window of NaN names its first cell, which may lie outside
                for c in range(b):
                    cell = cells[c] if cells[c] < area else cells[c] - SILENT
                    y, x = top + cell // kernel[1], left + cell % kernel[1]
                    if 0 <= y < height and 0 <= x < width:
                        corner[jump[cell] + c] += slopes[c] * share[cells[c]]


@fast_kernel(f"{_PLANES}, {_PAIR}, {_PAIR}, {_PAIR}, f4")
def max_backward(
    dy: Any, winners: Any, dx: Any, kernel: Any, stride: Any, pad: Any, silent: Any
) -> None:
    """dx = dy brought to the winners, times `silent` where those are SILENT; arrays are (planes,
    height, width, inner channels)."""
    area = kernel[0] * kernel[1]
    jump, share = empty(SILENT + area, np.int64), empty(SILENT + area, np.float32)
    for cell in range(SILENT + area):
        place = cell if cell < area else cell - SILENT
        jump[cell] = (place // kernel[1] * dx.shape[2] + place % kernel[1]) * dx.shape[3]
        share[cell] = np.float32(1) if cell < area else silent
    in_parallel(dx.shape[0], _scatter_plane, (dy, winners, dx, kernel, stride, pad, jump, share))
    free(jump)
    free(share)


def max_backward_for(
    x: tuple[int, ...], y: tuple[int, ...], window: Window
) -> tuple[Any, tuple[Any, ...]]:
    """The kernel that brings slopes of y to the winners of x, by their shapes, and what else it
    takes. There are two because one would have every net compile what few need."""
    # The kernel over whole planes would read and write beyond planes smaller than its window.
    if window.kernel == (3, 3) and window.stride == (1, 1) and x == y and min(x[2:]) >= 3:
        return dense_max_backward, (window.pad,)
    return max_backward, (window.kernel, window.stride, window.pad, LIKE_OTHERS)
