"""A sliding window taken apart: which pixels each cell of the kernel sees.

Array code that loops over the few cells of a kernel touches whole images at once, and needs
neither a padded copy nor a scatter with repeated indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from ..plans import Window


class Shift(NamedTuple):
    """One kernel cell: the windows in which it lies inside the image, and the pixels it sees.

    Both are indices for the last axes of an array.
    """

    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]


Reach = tuple[slice, slice]


class Shifts:
    """One entry per kernel cell in row-major order, made when it is asked for: there may be more
    of them than pixels."""

    def __init__(self, axes: Sequence[Sequence[Reach]]) -> None:
        self._axes = axes

    def __len__(self) -> int:
        return prod(len(axis) for axis in self._axes)

    def __iter__(self) -> Iterator[Shift]:
        for cell in product(*self._axes):
            yield Shift((..., *(o for o, _ in cell)), (..., *(i for _, i in cell)))


def shifts(into: Sequence[int], out: Sequence[int], window: Window) -> Shifts:
    """The cells of a window that slides over an image of size `into`, `out` times along each
    axis."""
    axes = [
        [_reach(size, outputs, stride, cell * dilation - pad) for cell in range(kernel)]
        for size, outputs, kernel, stride, pad, dilation in zip(
            into, out, window.kernel, window.stride, window.pad, window.dilation, strict=True
        )
    ]
    return Shifts(axes)


def _reach(size: int, outputs: int, stride: int, offset: int) -> tuple[slice, slice]:
    """The outputs o with 0 <= o * stride + offset < size, and those pixels."""
    first = max(0, -(offset // stride))
    last = min(outputs, (size - 1 - offset) // stride + 1)
    if last <= first:
        return slice(0, 0), slice(0, 0)
    start = first * stride + offset
    return slice(first, last), slice(start, start + (last - first - 1) * stride + 1, stride)
