"""Tensors as kernels see them: (samples, blocks of channels, pixels, channels of a block)."""

from __future__ import annotations

from math import prod

from ..tensor import NATIVE, Array, Layout, Tensor


def grid_of(layout: Layout) -> tuple[int, int, int, int]:
    """Its sizes; blocks of one channel where kernels cannot see it so."""
    grid = layout.grid or (0, 0, 0, 1)
    return (grid[0], 1, 1, grid[1]) if grid[2:] == (1, 1) else grid  # rows of channels


def seen(tensor: Tensor) -> Array:
    """What its storage holds."""
    assert tensor.buffer is not None
    grid = grid_of(tensor.layout)
    return tensor.buffer[: prod(grid)].reshape(grid)


def read(tensor: Tensor) -> Array:
    """Its value."""
    tensor.sync()
    return seen(tensor)


def written(tensor: Tensor) -> Array:
    """What is going to be its value."""
    tensor.allocate()
    tensor.fresh = NATIVE
    return seen(tensor)


def added_to(gradient: Tensor) -> Array:
    """The memory of a sum, for more to be added."""
    gradient.sync()
    assert gradient.buffer is not None
    gradient.fresh = NATIVE
    return gradient.buffer[: gradient.layout.elements]
