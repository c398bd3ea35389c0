"""MAX pooling of images whose channels lie side by side, as rows (pixels, channels)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import fast_kernel, fast_part, inlined
from ..instructions import at, max, min
from ..tasks import in_parallel
from .maxima import LOWEST, max_of_window
from .tiles import LANES

WIDE = 4 * LANES
_max_of_wide, _max_of_vector = max_of_window(4), max_of_window(1)


@inlined
def _max_of_channel(
    x: Any, start: int, strides: Any, sizes: Any, cells: Any, y: Any, winners: Any, place: int
) -> None:
    """The same for one channel."""
    seen, best, best_cell = at(x, start), LOWEST, 0
    for row in range(sizes[0]):
        for column in range(sizes[1]):
            value = seen[row * strides[0] + column * strides[1]]
            if not (value <= best or best != best):
                best, best_cell = value, cells[0] + row * cells[1] + column
    at(y, place)[0] = best
    at(winners, place)[0] = np.uint8(best_cell)


@fast_part
def _max_forward(task: int, x: Any, y: Any, winners: Any, sizes: Any, window: Any) -> None:
    height, width, rows, columns = sizes
    kernel, stride, pad = window
    channels = x.shape[1]
    image, i = task // rows, task % rows
    top = i * stride[0] - pad[0]
    first_row, stop_row = max(top, 0), min(top + kernel[0], height)
    wide, whole = channels // WIDE * WIDE, channels // LANES * LANES
    for j in range(columns):
        left, place = j * stride[1] - pad[1], (task * columns + j) * channels
        first, stop = max(left, 0), min(left + kernel[1], width)
        corner = ((image * height + first_row) * width + first) * channels
        strides, size = (width * channels, channels), (stop_row - first_row, stop - first)
        cells = (first_row - top) * kernel[1] + first - left, kernel[1]
        for c in range(0, wide, WIDE):
            _max_of_wide(x, corner + c, strides, size, cells, y, winners, place + c)
        for c in range(wide, whole, LANES):
            _max_of_vector(x, corner + c, strides, size, cells, y, winners, place + c)
        for c in range(whole, channels):
            _max_of_channel(x, corner + c, strides, size, cells, y, winners, place + c)


@fast_kernel("f4[:,::1], f4[:,::1], u1[:,::1], UniTuple(i8, 4), UniTuple(UniTuple(i8, 2), 3)")
def max_forward(x: Any, y: Any, winners: Any, sizes: Any, window: Any) -> None:
    """y = the maxima of clipped windows (kernel, stride, pad), and the cells where they were."""
    tasks = y.shape[0] // sizes[3]
    in_parallel(tasks, _max_forward, (x, y, winners, sizes, window))
