"""Local response normalisation across channels, on any layout of the family N [C/b] S [b].

Backward recomputes the normaliser from the input instead of storing it: reading x and dy and
writing dx is cheaper than a third tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inlined, parallel_jit, prange

PIXELS = 32  # per task: enough to pay for its buffers, few enough to balance threads


@inlined
def _power(s: Any, minus_beta: Any) -> Any:
    """s ** minus_beta; the usual exponents in terms of square roots, which vectorise."""
    if minus_beta == np.float32(-0.75):
        root = np.sqrt(s)
        return np.float32(1) / (root * np.sqrt(root))
    if minus_beta == np.float32(-0.5):
        return np.float32(1) / np.sqrt(s)
    return s**minus_beta


@inlined
def _gather(x: Any, base: int, outer: int, step: int, b: int, out: Any) -> None:
    """The channels of one pixel, side by side: the loops after it are long and vectorise."""
    for o in range(outer):
        at, to = base + o * step, o * b
        for j in range(b):
            out[to + j] = x[at + j]


@inlined
def _scatter(values: Any, y: Any, base: int, outer: int, step: int, b: int) -> None:
    for o in range(outer):
        at, start = base + o * step, o * b
        for j in range(b):
            y[at + j] = values[start + j]


@inlined
def _window_sums(values: Any, half: int, channels: int, out: Any) -> None:
    """out[c] = values of channels c-half .. c+half, where `values` has `half` zeros each side."""
    for c in range(channels):
        out[c] = values[c]
    for d in range(1, 2 * half + 1):
        for c in range(channels):
            out[c] += values[c + d]


@parallel_jit
def forward(x: Any, y: Any, grid: Any, size: int, alpha: Any, minus_beta: Any, k: Any) -> None:
    """y = x s^-beta with s = k + alpha * sum of squares around the channel."""
    num, outer, pixels, b = grid
    half, channels, step = (size - 1) // 2, outer * b, pixels * b
    tiles = (pixels + PIXELS - 1) // PIXELS
    for task in prange(num * tiles):
        n, first = task // tiles, task % tiles * PIXELS
        squares = np.zeros(channels + 2 * half, np.float32)
        value = np.empty(channels, np.float32)
        scale = np.empty(channels, np.float32)
        for s in range(first, min(first + PIXELS, pixels)):
            base = (n * outer * pixels + s) * b
            _gather(x, base, outer, step, b, value)
            for c in range(channels):
                squares[half + c] = value[c] * value[c]
            _window_sums(squares, half, channels, scale)
            for c in range(channels):
                scale[c] = k + alpha * scale[c]
            for c in range(channels):
                scale[c] = _power(scale[c], minus_beta)
            for c in range(channels):
                value[c] *= scale[c]
            _scatter(value, y, base, outer, step, b)


@parallel_jit
def backward(x: Any, dy: Any, dx: Any, grid: Any, size: int, alpha: Any, minus_beta: Any,
             k: Any) -> None:  # fmt: skip
    """dx = dy s^-beta - 2 alpha beta x * sum around the channel of (dy x s^(-beta-1))."""
    num, outer, pixels, b = grid
    half, channels, step = (size - 1) // 2, outer * b, pixels * b
    tiles = (pixels + PIXELS - 1) // PIXELS
    cross = np.float32(2) * alpha * minus_beta
    for task in prange(num * tiles):
        n, first = task // tiles, task % tiles * PIXELS
        padded = np.zeros(channels + 2 * half, np.float32)
        value = np.empty(channels, np.float32)
        slope = np.empty(channels, np.float32)
        total = np.empty(channels, np.float32)
        power = np.empty(channels, np.float32)
        for s in range(first, min(first + PIXELS, pixels)):
            base = (n * outer * pixels + s) * b
            _gather(x, base, outer, step, b, value)
            _gather(dy, base, outer, step, b, slope)
            for c in range(channels):
                padded[half + c] = value[c] * value[c]
            _window_sums(padded, half, channels, total)
            for c in range(channels):
                total[c] = k + alpha * total[c]
            for c in range(channels):
                power[c] = _power(total[c], minus_beta)
            for c in range(channels):
                slope[c] *= power[c]
            for c in range(channels):
                padded[half + c] = slope[c] * value[c] / total[c]
            _window_sums(padded, half, channels, total)
            for c in range(channels):
                slope[c] += cross * value[c] * total[c]
            _scatter(slope, dx, base, outer, step, b)
