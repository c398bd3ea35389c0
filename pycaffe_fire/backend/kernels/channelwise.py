"""PReLU, and a factor and an offset per channel, on any layout of the family N [C/b] S [b].

A task takes one sample's block of channels as a run of pixels * b elements. The channels' numbers
are repeated to a pattern of some hundred elements, so that inner loops run over plain memory. They
write to a local piece first: input and output may be one array, and a compiler that must assume
so would not vectorise. Sums over a task are kept for each, and the caller adds them in order: the
same for any number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import jit, parallel_jit, prange

PATTERN = 256  # elements, at least


@jit
def _pattern(numbers: Any, run: int) -> Any:
    """One block's numbers over and over, for pieces of a run of `run` elements."""
    b = numbers.size
    repeats = max(1, min((PATTERN + b - 1) // b, run // b))
    made = np.empty((repeats, b), np.float32)
    for r in range(repeats):
        for j in range(b):
            made[r, j] = numbers[j]
    return made.reshape(-1)


@jit
def _gather(lanes: Any, sums: Any) -> None:
    """Add up what the repeats of a pattern have collected for each channel."""
    table = lanes.reshape(-1, sums.size)
    for j in range(sums.size):
        sums[j] = np.float32(0)
    for r in range(table.shape[0]):
        for j in range(sums.size):
            sums[j] += table[r, j]


@jit
def _copy(source: Any, target: Any) -> None:
    for i in range(target.size):
        target[i] = source[i]


@jit
def _prelu_piece(x: Any, slopes: Any, out: Any) -> None:
    for i in range(x.size):
        value = x[i]
        scaled = slopes[i] * value
        out[i] = value if value > 0 else scaled


@parallel_jit
def prelu(x: Any, y: Any, kept: Any, slopes: Any) -> None:
    """y = x > 0 ? x : slope * x; `kept` receives a copy of x, unless it is empty."""
    num, outer, pixels, b = x.shape
    for task in prange(num * outer):
        n, o = task // outer, task % outer
        a, c = x[n, o].reshape(-1), y[n, o].reshape(-1)
        pattern = _pattern(slopes[o], pixels * b)
        piece, size = np.empty_like(pattern), pattern.size
        for start in range(0, a.size, size):
            part = a[start : start + size]
            if kept.size:
                _copy(part, kept[n, o].reshape(-1)[start : start + size])
            _prelu_piece(part, pattern, piece)
            _copy(piece, c[start : start + size])


@jit
def _prelu_back_piece(x: Any, dy: Any, slopes: Any, out: Any, lanes: Any) -> None:
    for i in range(x.size):
        value, slope = x[i], dy[i]
        scaled, product = slopes[i] * slope, value * slope
        out[i] = scaled if value <= 0 else slope
        lanes[i] += product if value <= 0 else np.float32(0)


@parallel_jit
def prelu_backward(x: Any, dy: Any, dx: Any, slopes: Any, data: bool, sums: Any) -> None:
    """dx, if wanted, and sums[n, o] = the slopes' gradient of one task."""
    num, outer, pixels, b = x.shape
    for task in prange(num * outer):
        n, o = task // outer, task % outer
        a, g, c = x[n, o].reshape(-1), dy[n, o].reshape(-1), dx[n, o].reshape(-1)
        pattern = _pattern(slopes[o], pixels * b)
        piece, size = np.empty_like(pattern), pattern.size
        lanes = np.zeros_like(pattern)
        for start in range(0, a.size, size):
            stop = start + size
            _prelu_back_piece(a[start:stop], g[start:stop], pattern, piece, lanes)
            if data:
                _copy(piece, c[start:stop])
        _gather(lanes, sums[n, o])


@jit
def _scale_piece(x: Any, factors: Any, offsets: Any, out: Any) -> None:
    for i in range(x.size):
        out[i] = x[i] * factors[i] + offsets[i]


@parallel_jit
def scale(x: Any, y: Any, kept: Any, factors: Any, offsets: Any) -> None:
    """y = x * factor + offset; `kept` receives a copy of x, unless it is empty."""
    num, outer, pixels, b = x.shape
    for task in prange(num * outer):
        n, o = task // outer, task % outer
        a, c = x[n, o].reshape(-1), y[n, o].reshape(-1)
        times, plus = _pattern(factors[o], pixels * b), _pattern(offsets[o], pixels * b)
        piece, size = np.empty_like(times), times.size
        for start in range(0, a.size, size):
            part = a[start : start + size]
            if kept.size:
                _copy(part, kept[n, o].reshape(-1)[start : start + size])
            _scale_piece(part, times, plus, piece)
            _copy(piece, c[start : start + size])


@jit
def _products(x: Any, dy: Any, lanes: Any) -> None:
    for i in range(x.size):
        lanes[i] += x[i] * dy[i]


@jit
def _sums(dy: Any, lanes: Any) -> None:
    for i in range(dy.size):
        lanes[i] += dy[i]


@jit
def _times_piece(dy: Any, factors: Any, out: Any) -> None:
    for i in range(dy.size):
        out[i] = dy[i] * factors[i]


@parallel_jit
def scale_backward(
    x: Any, dy: Any, dx: Any, factors: Any, data: bool, products: Any, totals: Any
) -> None:
    """dx, if wanted; products[n, o] = sums of x * dy and totals[n, o] = sums of dy of one task,
    each unless it is empty."""  # fmt: skip
    num, outer, pixels, b = dy.shape
    for task in prange(num * outer):
        n, o = task // outer, task % outer
        a, g, c = x[n, o].reshape(-1), dy[n, o].reshape(-1), dx[n, o].reshape(-1)
        pattern = _pattern(factors[o], pixels * b)
        piece, size = np.empty_like(pattern), pattern.size
        first, second = np.zeros_like(pattern), np.zeros_like(pattern)
        for start in range(0, g.size, size):
            stop = start + size
            if products.size:
                _products(a[start:stop], g[start:stop], first)
            if totals.size:
                _sums(g[start:stop], second)
            if data:
                _times_piece(g[start:stop], pattern, piece)
                _copy(piece, c[start:stop])
        if products.size:
            _gather(first, products[n, o])
        if totals.size:
            _gather(second, totals[n, o])
