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

RUN = 64 * TILE  # elements per task on a plain layout


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
def _apply(task: int, x: Any, y: Any, run: int, tasks: int, numbers: Any, draw: Any) -> None:
    _, outer, pixels, b = x.shape
    whole = pixels * b
    plane, begin = task // tasks, task % tasks * run
    n, o, size = plane // outer, plane % outer, min(run, whole - begin)
    blocks = (size + 3) // 4
    pairs, first = empty(2 * blocks, np.uint64), np.uint64(o * (whole // 4) + begin // 4)
    philox_tile(draw[0], draw[1], draw[2] + np.uint64(n), first, blocks, pairs)
    words, turned, kept = (
        view(pairs, np.uint32), empty(size, np.uint32), empty(4 * TILE, np.float32),
    )  # fmt: skip
    if b > 1:  # transposed, a few columns at a time for the cache's sake
        for start in range(0, pixels, 16):
            for j in range(b):
                line, target = at(words, j * pixels + start), at(turned, start * b + j)
                for s in range(min(16, pixels - start)):
                    target[s * b] = line[s]
    place = plane * whole + begin
    drawn = turned if b > 1 else words
    _drop(at(x, place), at(y, place), size, drawn, numbers[0], numbers[1], kept)
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
    samples, outer, pixels, b = x.shape
    run = RUN if b == 1 else pixels * b  # elements of a task
    tasks = (pixels * b + run - 1) // run  # for each block of channels
    in_parallel(samples * outer * tasks, _apply, (x, y, run, tasks, numbers, draw))
