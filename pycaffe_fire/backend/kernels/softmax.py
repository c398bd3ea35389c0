"""Softmax over channels on any layout of the family N [C/b] S [b], and its gradient.

The exponential is our own, because the library's does not vectorise. Inputs and outputs may be one
array: results are made in a local piece first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inlined, parallel_jit, prange

PIXELS = 64  # that are worked on together where channels lie apart


@inlined
def _exp(x: Any) -> Any:
    """e^x for x <= 0 to about 1e-7, relative; below -87 it stays at e^-87."""
    x = max(x, np.float32(-87.0))
    k = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
    r = x - k * np.float32(0.693359375) + k * np.float32(2.12194440e-4)
    p = np.float32(1 / 5040) * r + np.float32(1 / 720)
    p = (p * r + np.float32(1 / 120)) * r + np.float32(1 / 24)
    p = (p * r + np.float32(1 / 6)) * r + np.float32(1 / 2)
    p = p * r * r + r + np.float32(1)
    return p * np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)


@inlined
def _load(x: Any, s: int, v: Any) -> None:
    """v = the channels of one pixel of (outer, pixels, b)."""
    outer, _, b = x.shape
    for o in range(outer):
        for j in range(b):
            v[o * b + j] = x[o, s, j]


@inlined
def _store(v: Any, channels: int, y: Any, s: int) -> None:
    """The way back; channels of the padding are 0."""
    outer, _, b = y.shape
    for c in range(channels, v.size):
        v[c] = np.float32(0)
    for o in range(outer):
        for j in range(b):
            y[o, s, j] = v[o * b + j]


@parallel_jit
def rows(x: Any, y: Any, channels: int) -> None:
    """Blocks of channels lie together: pixel by pixel; (samples, outer, pixels, b)."""
    num, outer, pixels, b = x.shape
    tiles = (pixels + PIXELS - 1) // PIXELS
    for task in prange(num * tiles):
        n, first = task // tiles, task % tiles * PIXELS
        piece = np.empty(outer * b, np.float32)
        v = piece[:channels]
        for s in range(first, min(first + PIXELS, pixels)):
            _load(x[n], s, piece)
            best, total = v[0], np.float32(0)
            for c in range(channels):
                best = v[c] if v[c] > best else best
            for c in range(channels):
                v[c] = _exp(v[c] - best)
            for c in range(channels):
                total += v[c]
            for c in range(channels):
                v[c] /= total
            _store(piece, channels, y[n], s)


@parallel_jit
def rows_backward(y: Any, dy: Any, dx: Any, channels: int) -> None:
    """dx = (dy - sum of y dy) y."""
    num, outer, pixels, b = y.shape
    tiles = (pixels + PIXELS - 1) // PIXELS
    for task in prange(num * tiles):
        n, first = task // tiles, task % tiles * PIXELS
        piece, other = np.empty(outer * b, np.float32), np.empty(outer * b, np.float32)
        g = piece[:channels]
        for s in range(first, min(first + PIXELS, pixels)):
            _load(dy[n], s, piece)
            _load(y[n], s, other)
            dot = np.float32(0)
            for c in range(channels):
                dot += g[c] * other[c]
            for c in range(channels):
                g[c] = (g[c] - dot) * other[c]
            _store(piece, channels, dx[n], s)


@parallel_jit
def columns(x: Any, y: Any) -> None:
    """Channels lie apart: many pixels at once; (samples, channels, pixels)."""
    num, channels, pixels = x.shape
    tiles = (pixels + PIXELS - 1) // PIXELS
    for task in prange(num * tiles):
        n, first = task // tiles, task % tiles * PIXELS
        size = min(PIXELS, pixels - first)
        best, total = np.empty(size, np.float32), np.zeros(size, np.float32)
        piece = np.empty((channels, size), np.float32)
        best[:] = x[n, 0, first : first + size]
        for c in range(channels):
            line, v = x[n, c, first : first + size], piece[c]
            for s in range(size):
                v[s] = line[s]
                best[s] = v[s] if v[s] > best[s] else best[s]
        for c in range(channels):
            v = piece[c]
            for s in range(size):
                v[s] = _exp(v[s] - best[s])
            for s in range(size):
                total[s] += v[s]
        for s in range(size):
            total[s] = np.float32(1) / total[s]
        for c in range(channels):
            line, v = y[n, c, first : first + size], piece[c]
            for s in range(size):
                line[s] = v[s] * total[s]


@parallel_jit
def columns_backward(y: Any, dy: Any, dx: Any) -> None:
    """dx = (dy - sum of y dy) y."""
    num, channels, pixels = y.shape
    tiles = (pixels + PIXELS - 1) // PIXELS
    for task in prange(num * tiles):
        n, first = task // tiles, task % tiles * PIXELS
        size = min(PIXELS, pixels - first)
        dot, piece = np.zeros(size, np.float32), np.empty(size, np.float32)
        for c in range(channels):
            v, g = y[n, c, first : first + size], dy[n, c, first : first + size]
            for s in range(size):
                dot[s] += v[s] * g[s]
        for c in range(channels):
            v, g = y[n, c, first : first + size], dy[n, c, first : first + size]
            for s in range(size):
                piece[s] = (g[s] - dot[s]) * v[s]
            line = dx[n, c, first : first + size]
            for s in range(size):
                line[s] = piece[s]
