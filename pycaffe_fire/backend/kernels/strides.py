"""Pixels of a small image, spread over a large one."""

from __future__ import annotations

from typing import Any

from ..compiled import fast_kernel, fast_part
from ..instructions import at, clear
from ..tasks import in_parallel


@fast_part
def _spread_plane(plane: int, small: Any, large: Any, stride: Any) -> None:
    _, height, width, b = large.shape
    _, rows, columns, _ = small.shape
    out, source = at(large, plane * height * width * b), at(small, plane * rows * columns * b)
    clear(out, height * width * b)
    for i in range(rows):
        for j in range(columns):
            pixel = at(source, (i * columns + j) * b)
            target = at(out, (i * stride[0] * width + j * stride[1]) * b)
            for c in range(b):
                target[c] = pixel[c]


@fast_kernel("f4[:,:,:,::1], f4[:,:,:,::1], UniTuple(i8, 2)")
def spread_pixels(small: Any, large: Any, stride: Any) -> None:
    """large[::stride, ::stride] = small, and 0 between; arrays are (planes, height, width, inner
    channels)."""
    in_parallel(large.shape[0], _spread_plane, (small, large, stride))
