"""Softmax with compiled kernels: oneDNN has no fast gradient of it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..blob import Blob
from ..compiled import available
from ..kernels import softmax
from ..tensor import Array
from .kernel_plan import KernelPlan

if TYPE_CHECKING:
    from . import KernelBackend


def of_array(x: Array, axis: int) -> Array:
    """A new array: the softmax of a plain one."""
    source = np.ascontiguousarray(x, np.float32)
    y = np.empty_like(source)
    view, kernels, extra = _plain(x.shape, axis)
    kernels[0](source.reshape(view), y.reshape(view), *extra)
    return y


def kernel_of(shape: tuple[int, ...], axis: int) -> Any:
    """The kernel that `of_array` calls."""
    return _plain(shape, axis)[1][0]


def _plain(shape: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], Any, tuple[int, ...]]:
    """How kernels see a plain array, which they are, and what else they want to know."""
    axis %= len(shape)
    outer, channels, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    if inner == 1:
        return (outer, 1, 1, channels), (softmax.rows, softmax.rows_backward), (channels,)
    return (outer, channels, inner), (softmax.columns, softmax.columns_backward), ()


class Softmax(KernelPlan):
    """On blocked layouts over channels, on plain ones over any axis; backward needs y alone."""

    @staticmethod
    def supports(x: Blob, axis: int) -> bool:
        layout = x.value.layout
        if not available() or 0 in x.shape or not x.shape:
            return False
        return layout.is_plain or (layout.grid is not None and axis == 1)

    def __init__(self, backend: KernelBackend, x: Blob, y: Blob, axis: int) -> None:
        self.backend, self.x, self.y = backend, x, y
        y.lay_out(x.value.layout)
        self.view, kernels, self._numbers = _plain(x.shape, axis)
        grid = x.value.layout.grid
        if not x.value.layout.is_plain and grid is not None:
            self.view, self._numbers = grid, (x.shape[1],)
            kernels = (softmax.rows, softmax.rows_backward)
        self._forward, self._backward = kernels
        backend.expect([self._forward], [self._backward])

    def forward(self) -> None:
        self.run(self._forward, (self.x.value, self.y.value), self._numbers)

    def backward(self) -> None:
        tensors = self.y.value, self.y.gradient, self.x.gradient
        self.run(self._backward, tensors, self._numbers)
