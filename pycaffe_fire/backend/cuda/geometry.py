"""The geometry of a sliding window as kernels take it (kernels/geometry.cuh)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..plans import Window
from .launch import Constants, constants

AXES = 3  # that kernels know; fewer get extents of 1 in front


def lifted(values: Sequence[int], filling: int = 1) -> list[int]:
    """One number for each of the kernels' axes."""
    return [filling] * (AXES - len(values)) + list(values)


def geometry(
    xp: Any, channels: int, image: Sequence[int], out: Sequence[int], window: Window
) -> Constants:
    """19 integers."""
    numbers = [
        channels, *lifted(image), *lifted(window.kernel), *lifted(window.stride),
        *lifted(window.pad, 0), *lifted(window.dilation), *lifted(out),
    ]  # fmt: skip
    return constants(xp, numbers)


def pointwise(axes: int) -> Window:
    """A window of one cell that goes everywhere."""
    return Window((1,) * axes, (1,) * axes, (0,) * axes, (1,) * axes)
