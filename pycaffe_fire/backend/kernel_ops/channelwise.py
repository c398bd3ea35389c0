"""PReLU, and a factor and an offset per channel, with compiled kernels on any layout."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..blob import Blob
from ..compiled import available, use_threads
from ..kernels import channelwise
from ..plans import ChannelPlan
from ..tensor import NATIVE, Array, Tensor

if TYPE_CHECKING:
    from . import KernelBackend

NOTHING = np.empty((0, 0, 0, 0), np.float32)
NO_SUMS = np.empty((0, 0, 0), np.float32)


class Channelwise(ChannelPlan):
    """In place, the input is set aside while the output is computed."""

    @staticmethod
    def supports(x: Blob) -> bool:
        return available() and 0 not in x.shape and x.value.layout.grid is not None

    def __init__(self, backend: KernelBackend, x: Blob, y: Blob, keep: bool) -> None:
        self.backend, self.x, self.y = backend, x, y
        y.lay_out(x.value.layout)
        grid = x.value.layout.grid
        assert grid is not None
        if grid[2:] == (1, 1):  # rows of channels: many tasks of one element would not pay
            grid = (grid[0], 1, 1, grid[1])
        self._grid, self._channels = grid, x.shape[1]
        self._keep, self._kept = keep and x.value is y.value, NOTHING

    def _table(self, default: float = 0.0) -> Array:
        """One number per channel as (outer, inner); 0 for channels of the padding."""
        _, outer, _, inner = self._grid
        table = np.zeros(outer * inner, np.float32)
        table[: self._channels] = default
        return table.reshape(outer, inner)

    def _load(self, table: Array, blob: Blob | None) -> Array:
        if blob is not None:
            table.reshape(-1)[: self._channels] = blob.data.reshape(-1)
        return table

    def _sums(self) -> Array:
        num, outer, _, inner = self._grid
        return np.empty((num, outer, inner), np.float32)

    def _collect(self, sums: Array, blob: Blob) -> None:
        """Add the sums of all tasks to a parameter's gradient."""
        total = sums.sum(axis=0).reshape(-1)[: self._channels]
        blob.diff[...] += total.reshape(blob.shape) if blob.shape else total.sum()

    def _view(self, tensor: Tensor) -> Array:
        assert tensor.buffer is not None
        return tensor.buffer[: prod(self._grid)].reshape(self._grid)

    def _read(self, tensor: Tensor) -> Array:
        tensor.sync()
        return self._view(tensor)

    def _input(self) -> Array:
        return self._kept if self._kept.size else self._read(self.x.value)

    def _forward(self, kernel: Any, *numbers: Array) -> None:
        source = self._read(self.x.value)
        self.y.value.allocate()
        if self._keep and not self._kept.size:  # a layer that another one fuses never runs
            self._kept = self.backend.empty(prod(self._grid)).reshape(self._grid)
        use_threads(self.backend.threads)
        kernel(source, self._view(self.y.value), self._kept, *numbers)
        self.y.value.fresh = NATIVE

    def _backward(self, kernel: Any, x: Array, data: bool, numbers: Array, *sums: Array) -> None:
        dy, dx = self._read(self.y.gradient), self.x.gradient
        if data:
            dx.allocate()
        use_threads(self.backend.threads)
        kernel(x, dy, self._view(dx) if data else dy, numbers, data, *sums)
        if data:
            dx.fresh = NATIVE


class PReLU(Channelwise):
    """y = x for x > 0, slope * x otherwise; one slope per channel, or one for all."""

    def __init__(self, backend: KernelBackend, x: Blob, y: Blob, slope: Blob) -> None:
        super().__init__(backend, x, y, keep=True)
        self.slope = slope
        self._slopes, self._products = self._table(), self._sums()

    def forward(self) -> None:
        self._forward(channelwise.prelu, self._load(self._slopes, self.slope))

    def backward(self, data: bool, weights: bool, bias: bool = False) -> None:
        slopes, x = self._load(self._slopes, self.slope), self._input()
        self._backward(channelwise.prelu_backward, x, data, slopes, self._products)
        if weights:
            self._collect(self._products, self.slope)


class ScaleShift(Channelwise):
    """y = x * scale + shift, one of each per channel; either may be missing."""

    def __init__(
        self, backend: KernelBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None
    ) -> None:
        super().__init__(backend, x, y, keep=scale is not None)
        self.scale, self.shift = scale, shift
        self._factors, self._offsets = self._table(1.0), self._table()
        self._products = NO_SUMS if scale is None else self._sums()
        self._totals = NO_SUMS if shift is None else self._sums()

    def forward(self) -> None:
        factors, offsets = (
            self._load(self._factors, self.scale),
            self._load(self._offsets, self.shift),
        )
        self._forward(channelwise.scale, factors, offsets)

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        data = data and not (self.scale is None and self.x.gradient is self.y.gradient)
        products = self._products if weights else NO_SUMS
        totals = self._totals if bias else NO_SUMS
        if not (data or products.size or totals.size):
            return
        factors = self._load(self._factors, self.scale)
        x = self._input() if products.size else self._read(self.y.gradient)  # or not read
        self._backward(channelwise.scale_backward, x, data, factors, products, totals)
        if products.size and self.scale is not None:
            self._collect(products, self.scale)
        if totals.size and self.shift is not None:
            self._collect(totals, self.shift)
