"""Dropout on any layout of the family N [C/b] S [b]: masks are drawn, never stored.

The draw for an element depends on its logical position in its sample, so every layout, thread
count and device drops the same elements. Random words come many blocks at a time, because only
such a loop vectorises.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import fast_kernel, fast_part, part
from ..instructions import at, copy, empty, free, min, view
from ..random import TILE, philox_tile
from ..tasks import in_parallel

RUN = 16  # tiles per task on a plain layout


@part
def _drop(x: Any, y: Any, size: int, words: Any, least: Any, scale: Any, kept: Any) -> None:
    """x and y may be one array: `kept` stands between, so that both loops vectorise."""
    for start in range(0, size, 4 * TILE):
        source, target, drawn = at(x, start), at(y, start), at(words, start)
        count = min(4 * TILE, size - start)
        for i in range(count):
            value = source[i] * scale
            kept[i] = value if drawn[i] >= least else np.float32(0)
        copy(kept, target, count)


@fast_part
def _plain(task: int, x: Any, y: Any, numbers: Any, draw: Any) -> None:
    n = x.shape[2]
    runs = (n + RUN * 4 * TILE - 1) // (RUN * 4 * TILE)
    row, begin = task // runs, task % runs * RUN * 4 * TILE
    pairs, kept = empty(2 * TILE, np.uint64), empty(4 * TILE, np.float32)
    words = view(pairs, np.uint32)
    for start in range(begin, min(begin + RUN * 4 * TILE, n), 4 * TILE):
        sample, block = draw[2] + np.uint64(row), np.uint64(start // 4)
        philox_tile(draw[0], draw[1], sample, block, TILE, pairs)
        size, place = min(4 * TILE, n - start), row * n + start
        _drop(at(x, place), at(y, place), size, words, numbers[0], numbers[1], kept)
    free(pairs)
    free(kept)


@fast_part
def _blocked(task: int, x: Any, y: Any, numbers: Any, draw: Any) -> None:
    _, outer, pixels, b = x.shape
    n, o, size = task // outer, task % outer, pixels * b
    blocks = (size + 3) // 4
    pairs, first = empty(2 * blocks, np.uint64), np.uint64(o * (size // 4))
    philox_tile(draw[0], draw[1], draw[2] + np.uint64(n), first, blocks, pairs)
    words, turned, kept = (
        view(pairs, np.uint32), empty(size, np.uint32), empty(4 * TILE, np.float32),
    )  # fmt: skip
    for start in range(0, pixels, 16):  # transposed, a few columns at a time for the cache's sake
        for j in range(b):
            line, target = at(words, j * pixels + start), at(turned, start * b + j)
            for s in range(min(16, pixels - start)):
                target[s * b] = line[s]
    place = task * size
    _drop(at(x, place), at(y, place), size, turned, numbers[0], numbers[1], kept)
    free(pairs)
    free(turned)
    free(kept)


@fast_kernel("f4[:,:,:,::1], f4[:,:,:,::1], Tuple((u4, f4)), UniTuple(u8, 3)")
def apply(x: Any, y: Any, numbers: Any, draw: Any) -> None:
    """y = x * scale where the element's word is at least `least`, else 0.

    Arrays are (samples, outer channels, pixels, inner channels), or (samples, 1, elements, 1);
    `numbers` is (least, scale), `draw` is (key, step, first sample). The words of a block of
    channels are drawn in logical order, then turned to that of the memory. A block starts with a
    new group of four words: see `supports` of the plan.
    """
    if x.shape[3] == 1:
        runs = (x.shape[2] + RUN * 4 * TILE - 1) // (RUN * 4 * TILE)
        in_parallel(x.shape[0] * runs, _plain, (x, y, numbers, draw))
    else:
        in_parallel(x.shape[0] * x.shape[1], _blocked, (x, y, numbers, draw))
