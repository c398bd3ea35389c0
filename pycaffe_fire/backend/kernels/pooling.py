"""What oneDNN lacks in MAX pooling: the gradient from the recorded winners, several times as fast
as its own, and NaN, which it passes over.

A winner is the number of the kernel cell that held the maximum, in row-major order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import parallel_jit, part, prange


@part
def _collect(slopes: Any, winners: Any, cell: int, jump: int, b: int, out: Any) -> None:
    """out += what three neighbouring cells of a kernel row won; source = target - jump."""
    n, one, two, three = out.size, np.uint8(cell), np.uint8(cell + 1), np.uint8(cell + 2)
    first, stop = max(0, jump + 2 * b), n + min(0, jump)  # where all three have a source
    near = slice(first - jump - 2 * b, stop - jump - 2 * b)
    middle = slice(first - jump - b, stop - jump - b)
    far = slice(first - jump, stop - jump)
    target, g1, g2, g3 = out[first:stop], slopes[far], slopes[middle], slopes[near]
    w1, w2, w3 = winners[far], winners[middle], winners[near]
    for i in range(target.size):
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


@part
def _gather(dy: Any, winners: Any, dx: Any, pad: Any) -> None:
    """3x3, stride 1, as large as its input: one long loop over the plane for each kernel row.

    It runs on over the ends of rows, which is harmless: a cell outside the image never wins, but
    in a window of NaN.
    """
    height, width, b = dx.shape
    size = height * width * b
    out, slopes, cells = dx.reshape(size), dy.reshape(size), winners.reshape(size)
    out[:] = 0
    for row in range(3):
        _collect(slopes, cells, 3 * row, ((row - pad[0]) * width - pad[1]) * b, b, out)


@part
def _scatter(dy: Any, winners: Any, dx: Any, kernel: Any, stride: Any, pad: Any, jump: Any) -> None:
    """Anything else: one slope at a time."""
    height, width, b = dx.shape
    rows, columns = dy.shape[0], dy.shape[1]
    flat = dx.reshape(height * width * b)
    flat[:] = 0
    for i in range(rows):
        top = i * stride[0] - pad[0]
        for j in range(columns):
            left = j * stride[1] - pad[1]
            base = (top * width + left) * b
            slopes, cells = dy[i, j], winners[i, j]
            inside = top >= 0 and left >= 0
            if inside and top + kernel[0] <= height and left + kernel[1] <= width:
                for c in range(b):
                    flat[base + jump[cells[c]] + c] += slopes[c]
            else:  # a window of NaN names its first cell, which may lie outside
                for c in range(b):
                    y, x = top + cells[c] // kernel[1], left + cells[c] % kernel[1]
                    if 0 <= y < height and 0 <= x < width:
                        flat[base + jump[cells[c]] + c] += slopes[c]


@parallel_jit
def max_backward(dy: Any, winners: Any, dx: Any, kernel: Any, stride: Any, pad: Any) -> None:
    """dx = dy brought to the winners; arrays are (planes, height, width, inner channels)."""
    planes, _, width, b = dx.shape
    jump = np.empty(kernel[0] * kernel[1], np.int64)
    for cell in range(jump.size):
        jump[cell] = (cell // kernel[1] * width + cell % kernel[1]) * b
    same_size = stride == (1, 1) and dy.shape == dx.shape
    for plane in prange(planes):
        if same_size and kernel == (3, 3):
            _gather(dy[plane], winners[plane], dx[plane], pad)
        else:
            _scatter(dy[plane], winners[plane], dx[plane], kernel, stride, pad, jump)


@parallel_jit
def all_finite(values: Any, parts: int) -> bool:
    """Is none of these numbers infinite or NaN? One pass, at the speed of memory."""
    zeros = np.zeros(parts, np.float32)
    for k in prange(parts):
        mine = values[values.size * k // parts : values.size * (k + 1) // parts]
        total = np.float32(0)
        for i in range(mine.size):
            total += mine[i] * np.float32(0)
        zeros[k] = total
    return bool(zeros.sum() == 0)
