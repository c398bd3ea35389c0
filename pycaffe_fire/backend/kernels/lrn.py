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
def _window_sums(padded: Any, half: int, out: Any) -> None:
    """out[c] = the sum of padded[c .. c + 2 half]; slices, because they keep the loops simple."""
    out[:] = padded[: out.size]
    for d in range(1, 2 * half + 1):
        shifted = padded[d : d + out.size]
        for c in range(out.size):
            out[c] += shifted[c]


@parallel_jit
def forward(x: Any, y: Any, size: int, alpha: Any, minus_beta: Any, k: Any) -> None:
    """y = x s^-beta with s = k + alpha * sum of squares around the channel."""
    num, outer, pixels, b = x.shape
    half, channels = (size - 1) // 2, outer * b
    tiles = (pixels + PIXELS - 1) // PIXELS
    for task in prange(num * tiles):
        n, first = task // tiles, task % tiles * PIXELS
        padded = np.zeros(channels + 2 * half, np.float32)
        value = np.empty((outer, b), np.float32)
        flat, squares = value.reshape(channels), padded[half : half + channels]
        scale = np.empty(channels, np.float32)
        for s in range(first, min(first + PIXELS, pixels)):
            for o in range(outer):
                for j in range(b):
                    value[o, j] = x[n, o, s, j]
            for c in range(channels):
                squares[c] = flat[c] * flat[c]
            _window_sums(padded, half, scale)
            for c in range(channels):
                scale[c] = k + alpha * scale[c]
            for c in range(channels):
                scale[c] = _power(scale[c], minus_beta)
            for c in range(channels):
                flat[c] *= scale[c]
            for o in range(outer):
                for j in range(b):
                    y[n, o, s, j] = value[o, j]


@parallel_jit
def backward(x: Any, dy: Any, dx: Any, size: int, alpha: Any, minus_beta: Any, k: Any) -> None:
    """dx = dy s^-beta - 2 alpha beta x * sum around the channel of (dy x s^(-beta-1))."""
    num, outer, pixels, b = x.shape
    half, channels = (size - 1) // 2, outer * b
    tiles = (pixels + PIXELS - 1) // PIXELS
    cross = np.float32(2) * alpha * minus_beta
    for task in prange(num * tiles):
        n, first = task // tiles, task % tiles * PIXELS
        padded = np.zeros(channels + 2 * half, np.float32)
        inside = padded[half : half + channels]
        value, slope = np.empty((outer, b), np.float32), np.empty((outer, b), np.float32)
        v, g = value.reshape(channels), slope.reshape(channels)
        total, power = np.empty(channels, np.float32), np.empty(channels, np.float32)
        for s in range(first, min(first + PIXELS, pixels)):
            for o in range(outer):
                for j in range(b):
                    value[o, j] = x[n, o, s, j]
                for j in range(b):
                    slope[o, j] = dy[n, o, s, j]
            for c in range(channels):
                inside[c] = v[c] * v[c]
            _window_sums(padded, half, total)
            for c in range(channels):
                total[c] = k + alpha * total[c]
            for c in range(channels):
                power[c] = _power(total[c], minus_beta)
            for c in range(channels):
                g[c] *= power[c]
            for c in range(channels):
                inside[c] = g[c] * v[c] / total[c]
            _window_sums(padded, half, total)
            for c in range(channels):
                g[c] += cross * v[c] * total[c]
            for o in range(outer):
                for j in range(b):
                    dx[n, o, s, j] = slope[o, j]
