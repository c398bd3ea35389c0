"""Dropout on any layout of the family N [C/b] S [b]: masks are drawn, never stored.

The draw for an element depends on its logical position in its sample, so every layout, thread
count and device drops the same elements. Random words come many blocks at a time, because only
such a loop vectorises.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import jit, parallel_jit, prange
from ..random import TILE, philox_tile

RUN = 16  # tiles per task on a plain layout


@jit
def _drop(x: Any, y: Any, words: Any, least: Any, scale: Any, kept: Any) -> None:
    """x and y may be one array: `kept` stands between, so that both loops vectorise."""
    for start in range(0, x.size, kept.size):
        source, target = x[start : start + kept.size], y[start : start + kept.size]
        drawn = words[start : start + kept.size]
        for i in range(source.size):
            value = source[i] * scale
            kept[i] = value if drawn[i] >= least else np.float32(0)
        for i in range(source.size):
            target[i] = kept[i]


@jit
def _turn(words: Any, turned: Any) -> None:
    """turned = words transposed, a few columns at a time for the cache's sake."""
    for start in range(0, words.shape[1], 16):
        for j in range(words.shape[0]):
            part = words[j, start : start + 16]
            for s in range(part.size):
                turned[start + s, j] = part[s]


@parallel_jit
def apply_plain(
    x: Any, y: Any, least: Any, scale: Any, key: Any, step: Any, first_sample: Any
) -> None:
    """y = x * scale where the element's word is at least `least`, else 0; (samples, elements)."""
    num, n = x.shape
    step_size = 4 * TILE
    runs = (n + RUN * step_size - 1) // (RUN * step_size)
    for task in prange(num * runs):
        row, begin = task // runs, task % runs * RUN * step_size
        pairs, kept = np.empty(2 * TILE, np.uint64), np.empty(4 * TILE, np.float32)
        words = pairs.view(np.uint32)
        for start in range(begin, min(begin + RUN * step_size, n), step_size):
            sample, stop = first_sample + np.uint64(row), min(start + step_size, n)
            philox_tile(key, step, sample, np.uint64(start // 4), pairs)
            _drop(x[row, start:stop], y[row, start:stop], words, least, scale, kept)


@parallel_jit
def apply_blocked(
    x: Any, y: Any, least: Any, scale: Any, key: Any, step: Any, first_sample: Any
) -> None:
    """The same for (samples, outer channels, pixels, inner channels).

    The words of a block of channels are drawn in logical order, then turned to that of the
    memory. A block starts with a new group of four words: see `supports` of the plan.
    """
    num, outer, pixels, b = x.shape
    blocks = (b * pixels + 3) // 4
    for task in prange(num * outer):
        n, o = task // outer, task % outer
        pairs = np.empty(2 * blocks, np.uint64)
        first = np.uint64(o * (b * pixels // 4))
        philox_tile(key, step, first_sample + np.uint64(n), first, pairs)
        turned = np.empty((pixels, b), np.uint32)
        _turn(pairs.view(np.uint32)[: b * pixels].reshape(b, pixels), turned)
        kept, flat = np.empty(4 * TILE, np.float32), turned.reshape(-1)
        _drop(x[n, o].reshape(-1), y[n, o].reshape(-1), flat, least, scale, kept)
