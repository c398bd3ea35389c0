"""A sliding window taken apart: which pixels each cell of the kernel sees.

Array code that loops over the few cells of a kernel touches whole images at once, and needs
neither a padded copy nor a scatter with repeated indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from ..base import Window


class Shift(NamedTuple):
    """One kernel cell: the windows in which it lies inside the image, and the pixels it sees.

    Both are indices for the last axes of an array.
    """

    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]


def shifts(into: Sequence[int], out: Sequence[int], window: Window) -> list[Shift]:
    """One entry per kernel cell in row-major order."""
    axes = [
        [_reach(size, outputs, stride, cell * dilation - pad) for cell in range(kernel)]
        for size, outputs, kernel, stride, pad, dilation in zip(
            into, out, window.kernel, window.stride, window.pad, window.dilation, strict=True
        )
    ]
    return [
        Shift((..., *(o for o, _ in cell)), (..., *(i for _, i in cell))) for cell in product(*axes)
    ]


def _reach(size: int, outputs: int, stride: int, offset: int) -> tuple[slice, slice]:
    """The outputs o with 0 <= o * stride + offset < size, and those pixels."""
    first = max(0, -(offset // stride))
    last = min(outputs, (size - 1 - offset) // stride + 1)
    if last <= first:
        return slice(0, 0), slice(0, 0)
    start = first * stride + offset
    return slice(first, last), slice(start, start + (last - first - 1) * stride + 1, stride)
