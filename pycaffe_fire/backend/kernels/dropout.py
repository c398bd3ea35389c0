"""Dropout on any layout of the family N [C/b] S [b]: masks are drawn, never stored.

The draw for an element depends on its logical position in its sample, so every layout, thread
count and device drops the same elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import parallel_jit, prange
from ..random import philox


@parallel_jit
def apply(
    x: Any, y: Any, grid: Any, ratio: Any, scale: Any, key: Any, step: Any, first_sample: Any
) -> None:
    """y = x * scale where uniform >= ratio, else 0 (forward on data, backward on gradients)."""
    num, outer, pixels, b = grid
    unit = np.float32(2.0**-24)
    for task in prange(num * outer):
        n, o = task // outer, task % outer
        sample = first_sample + np.uint64(n)
        last = np.int64(-1)
        words = philox(key, step, sample, np.uint64(0))
        for j in range(b):
            at = task * pixels * b + j
            for s in range(pixels):
                position = (o * b + j) * pixels + s
                block = position // 4
                if block != last:
                    words = philox(key, step, sample, np.uint64(block))
                    last = block
                uniform = np.float32(words[position % 4] >> np.uint32(8)) * unit
                y[at] = x[at] * scale if uniform >= ratio else np.float32(0)
                at += b
