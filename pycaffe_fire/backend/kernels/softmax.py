"""Softmax over channels on any layout of the family N [C/b] S [b], and its gradient.

The exponential is our own, because the library's does not vectorise. Inputs and outputs may be one
array: results are made in a local piece first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import fast_kernel, fast_part, inlined
from ..instructions import at, clear, copy, empty, free, max, min, view, zeros
from ..tasks import in_parallel

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
    return p * view(np.int32((np.int32(k) + np.int32(127)) << np.int32(23)), np.float32)


@fast_part
def _rows(task: int, x: Any, y: Any, channels: int) -> None:
    _, outer, pixels, b = x.shape
    tiles = (pixels + PIXELS - 1) // PIXELS
    n, first = task // tiles, task % tiles * PIXELS
    v = empty(outer * b, np.float32)
    for s in range(first, min(first + PIXELS, pixels)):
        place = (n * outer * pixels + s) * b
        for o in range(outer):
            copy(at(x, place + o * pixels * b), at(v, o * b), b)
        best, total = v[0], np.float32(0)
        for c in range(channels):
            best = v[c] if v[c] > best else best
        for c in range(channels):
            v[c] = _exp(v[c] - best)
        for c in range(channels):
            total += v[c]
        for c in range(channels):
            v[c] /= total
        clear(at(v, channels), outer * b - channels)  # the padding
        for o in range(outer):
            copy(at(v, o * b), at(y, place + o * pixels * b), b)
    free(v)


@fast_kernel("f4[:,:,:,::1], f4[:,:,:,::1], i8")
def rows(x: Any, y: Any, channels: int) -> None:
    """Blocks of channels lie together: pixel by pixel; (samples, outer, pixels, b)."""
    tiles = (x.shape[2] + PIXELS - 1) // PIXELS
    in_parallel(x.shape[0] * tiles, _rows, (x, y, channels))


@fast_part
def _rows_backward(task: int, y: Any, dy: Any, dx: Any, channels: int) -> None:
    _, outer, pixels, b = y.shape
    tiles = (pixels + PIXELS - 1) // PIXELS
    n, first = task // tiles, task % tiles * PIXELS
    g, v = empty(outer * b, np.float32), empty(outer * b, np.float32)
    for s in range(first, min(first + PIXELS, pixels)):
        place = (n * outer * pixels + s) * b
        for o in range(outer):
            copy(at(dy, place + o * pixels * b), at(g, o * b), b)
            copy(at(y, place + o * pixels * b), at(v, o * b), b)
        dot = np.float32(0)
        for c in range(channels):
            dot += g[c] * v[c]
        for c in range(channels):
            g[c] = (g[c] - dot) * v[c]
        clear(at(g, channels), outer * b - channels)
        for o in range(outer):
            copy(at(g, o * b), at(dx, place + o * pixels * b), b)
    free(g)
    free(v)


@fast_kernel("f4[:,:,:,::1], f4[:,:,:,::1], f4[:,:,:,::1], i8")
def rows_backward(y: Any, dy: Any, dx: Any, channels: int) -> None:
    """dx = (dy - sum of y dy) y."""
    tiles = (y.shape[2] + PIXELS - 1) // PIXELS
    in_parallel(y.shape[0] * tiles, _rows_backward, (y, dy, dx, channels))


@fast_part
def _columns(task: int, x: Any, y: Any) -> None:
    _, channels, pixels = x.shape
    tiles = (pixels + PIXELS - 1) // PIXELS
    first = task % tiles * PIXELS
    size, place = min(PIXELS, pixels - first), task // tiles * channels * pixels + first
    source, target = at(x, place), at(y, place)
    best, total = empty(PIXELS, np.float32), zeros(PIXELS, np.float32)
    piece = empty(channels * size, np.float32)
    for s in range(size):
        best[s] = source[s]
    for c in range(channels):
        line, v = at(source, c * pixels), at(piece, c * size)
        for s in range(size):
            v[s] = line[s]
            best[s] = v[s] if v[s] > best[s] else best[s]
    for c in range(channels):
        v = at(piece, c * size)
        for s in range(size):
            v[s] = _exp(v[s] - best[s])
        for s in range(size):
            total[s] += v[s]
    for s in range(size):
        total[s] = np.float32(1) / total[s]
    for c in range(channels):
        line, v = at(target, c * pixels), at(piece, c * size)
        for s in range(size):
            line[s] = v[s] * total[s]
    free(best)
    free(total)
    free(piece)


@fast_kernel("f4[:,:,::1], f4[:,:,::1]")
def columns(x: Any, y: Any) -> None:
    """Channels lie apart: many pixels at once; (samples, channels, pixels)."""
    tiles = (x.shape[2] + PIXELS - 1) // PIXELS
    in_parallel(x.shape[0] * tiles, _columns, (x, y))


@fast_part
def _columns_backward(task: int, y: Any, dy: Any, dx: Any) -> None:
    _, channels, pixels = y.shape
    tiles = (pixels + PIXELS - 1) // PIXELS
    first = task % tiles * PIXELS
    size, place = min(PIXELS, pixels - first), task // tiles * channels * pixels + first
    dot, piece = zeros(PIXELS, np.float32), empty(PIXELS, np.float32)
    for c in range(channels):
        v, g = at(y, place + c * pixels), at(dy, place + c * pixels)
        for s in range(size):
            dot[s] += v[s] * g[s]
    for c in range(channels):
        v, g = at(y, place + c * pixels), at(dy, place + c * pixels)
        for s in range(size):
            piece[s] = (g[s] - dot[s]) * v[s]
        line = at(dx, place + c * pixels)
        for s in range(size):
            line[s] = piece[s]
    free(dot)
    free(piece)


@fast_kernel("f4[:,:,::1], f4[:,:,::1], f4[:,:,::1]")
def columns_backward(y: Any, dy: Any, dx: Any) -> None:
    """dx = (dy - sum of y dy) y."""
    tiles = (y.shape[2] + PIXELS - 1) // PIXELS
    in_parallel(y.shape[0] * tiles, _columns_backward, (y, dy, dx))
