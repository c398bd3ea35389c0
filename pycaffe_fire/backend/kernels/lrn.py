"""Local response normalisation, on any layout of the family N [C/b] S [b].

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
def _scales(views: Any, padded: Any, half: int, k: Any, alpha: Any, out: Any) -> None:
    """out[c] = k + alpha * the sum of padded[c .. c + 2 half].

    `views` are padded's first five slices, made once: a window of 5, which most nets have, then
    takes a single loop.
    """
    v0, v1, v2, v3, v4 = views
    if half == 2:
        for c in range(out.size):
            out[c] = k + alpha * (v0[c] + v1[c] + v2[c] + v3[c] + v4[c])
    else:
        out[:] = v0
        for d in range(1, 2 * half + 1):
            shifted = padded[d : d + out.size]
            for c in range(out.size):
                out[c] += shifted[c]
        for c in range(out.size):
            out[c] = k + alpha * out[c]


@inlined
def _views(padded: Any, size: int) -> Any:
    return (
        padded[:size], padded[1 : size + 1], padded[2 : size + 2], padded[3 : size + 3],
        padded[4 : size + 4],
    )  # fmt: skip


@parallel_jit
def forward(x: Any, y: Any, size: int, alpha: Any, minus_beta: Any, k: Any) -> None:
    """y = x s^-beta with s = k + alpha * sum of squares around the channel."""
    num, outer, pixels, b = x.shape
    half, channels = (size - 1) // 2, outer * b
    tiles = (pixels + PIXELS - 1) // PIXELS
    for task in prange(num * tiles):
        n, first = task // tiles, task % tiles * PIXELS
        padded = np.zeros(channels + 2 * max(half, 2), np.float32)
        views = _views(padded, channels)
        value = np.empty((outer, b), np.float32)
        flat, squares = value.reshape(channels), padded[half : half + channels]
        scale = np.empty(channels, np.float32)
        for s in range(first, min(first + PIXELS, pixels)):
            for o in range(outer):
                for j in range(b):
                    value[o, j] = x[n, o, s, j]
            for c in range(channels):
                squares[c] = flat[c] * flat[c]
            _scales(views, padded, half, k, alpha, scale)
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
        padded = np.zeros(channels + 2 * max(half, 2), np.float32)
        views, inside = _views(padded, channels), padded[half : half + channels]
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
            _scales(views, padded, half, k, alpha, total)
            for c in range(channels):
                power[c] = _power(total[c], minus_beta)
            for c in range(channels):
                g[c] *= power[c]
                inside[c] = g[c] * v[c] / total[c]
            _scales(views, padded, half, np.float32(0), cross, total)
            for c in range(channels):
                g[c] += v[c] * total[c]
            for o in range(outer):
                for j in range(b):
                    dx[n, o, s, j] = slope[o, j]


@inlined
def _box_sums(values: Any, rows: Any, out: Any, half: int, b: int) -> None:
    """out = values summed over squares of side 2 half + 1, cut off at the border; (h, w * b)."""
    height, length = values.shape
    for y in range(height):
        line, source = rows[y], values[y]
        line[:] = source
        for d in range(1, min(half, length // b - 1) + 1):
            left, right = line[d * b :], line[: length - d * b]
            before, behind = source[: length - d * b], source[d * b :]
            for i in range(left.size):
                left[i] += before[i]
            for i in range(right.size):
                right[i] += behind[i]
    for y in range(height):
        line = out[y]
        line[:] = rows[y]
        for d in range(1, half + 1):
            for near in (y - d, y + d):
                if 0 <= near < height:
                    other = rows[near]
                    for i in range(length):
                        line[i] += other[i]


@parallel_jit
def within_forward(x: Any, y: Any, b: int, size: int, alpha: Any, minus_beta: Any, k: Any) -> None:
    """y = x s^-beta with s = k + alpha * sum of squares around the pixel; (planes, h, w * b)."""
    planes, height, length = x.shape
    half = (size - 1) // 2
    for plane in prange(planes):
        squares = x[plane] * x[plane]
        rows, scale = np.empty_like(squares), np.empty_like(squares)
        _box_sums(squares, rows, scale, half, b)
        source, target = x[plane].reshape(-1), y[plane].reshape(-1)
        s = scale.reshape(-1)
        for i in range(s.size):
            s[i] = k + alpha * s[i]
        for i in range(s.size):
            s[i] = _power(s[i], minus_beta)
        for i in range(s.size):
            target[i] = source[i] * s[i]


@parallel_jit
def within_backward(x: Any, dy: Any, dx: Any, b: int, size: int, alpha: Any, minus_beta: Any,
                    k: Any) -> None:  # fmt: skip
    """dx = dy s^-beta - 2 alpha beta x * sum around the pixel of (dy x s^(-beta-1))."""
    planes, height, length = x.shape
    half = (size - 1) // 2
    cross = np.float32(2) * alpha * minus_beta
    for plane in prange(planes):
        work = x[plane] * x[plane]
        rows, total = np.empty_like(work), np.empty_like(work)
        _box_sums(work, rows, total, half, b)
        v, g, out = x[plane].reshape(-1), dy[plane].reshape(-1), dx[plane].reshape(-1)
        s, ratio, slope = total.reshape(-1), work.reshape(-1), np.empty(v.size, np.float32)
        for i in range(s.size):
            s[i] = k + alpha * s[i]
        for i in range(s.size):
            slope[i] = _power(s[i], minus_beta)
        for i in range(s.size):
            slope[i] *= g[i]
        for i in range(s.size):
            ratio[i] = slope[i] * v[i] / s[i]
        _box_sums(work, rows, total, half, b)
        for i in range(s.size):
            out[i] = slope[i] + cross * v[i] * s[i]
