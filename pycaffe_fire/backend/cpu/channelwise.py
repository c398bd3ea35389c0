"""PReLU, and a factor and an offset per channel, on any layout: native/channelwise.c."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..plans import ChannelPlan
from ..tensor import Array, Tensor
from . import library
from .grid import GridKernel, run_on
from .library import Floats

if TYPE_CHECKING:
    from .backend import CpuBackend


class PReLUForward(GridKernel):
    name = "prelu"
    x: Floats
    slopes: Floats
    y: Floats
    kept: Floats | None

    def check(self) -> None:
        self.need(x=self.elements, y=self.elements, kept=self.elements, slopes=self.table)


class PReLUBackward(GridKernel):
    name = "prelu_backward"
    x: Floats
    slopes: Floats
    dy: Floats
    dx: Floats | None
    sums: Floats

    def check(self) -> None:
        self.need(x=self.elements, dy=self.elements, dx=self.elements, slopes=self.table)
        self.need(sums=self.samples * self.table)


class ScaleShiftForward(GridKernel):
    name = "scale_shift"
    x: Floats
    factors: Floats
    offsets: Floats
    y: Floats
    kept: Floats | None

    def check(self) -> None:
        self.need(x=self.elements, y=self.elements, kept=self.elements)
        self.need(factors=self.table, offsets=self.table)


class ScaleShiftBackward(GridKernel):
    name = "scale_shift_backward"
    x: Floats  # read for products alone
    factors: Floats
    dy: Floats
    dx: Floats | None
    products: Floats | None
    totals: Floats | None

    def check(self) -> None:
        self.need(x=self.elements, dy=self.elements, dx=self.elements, factors=self.table)
        self.need(products=self.samples * self.table, totals=self.samples * self.table)


class Channelwise(ChannelPlan):
    """In place, the input is set aside while the output is computed."""

    @staticmethod
    def supports(x: Blob) -> bool:
        return library.available() and 0 not in x.shape and x.value.layout.grid is not None

    def __init__(self, backend: CpuBackend, x: Blob, y: Blob, keep: bool) -> None:
        self.backend, self.x, self.y = backend, x, y
        y.lay_out(x.value.layout)
        grid = x.value.layout.grid
        assert grid is not None
        if grid[2:] == (1, 1):  # rows of channels: many tasks of one element would not pay
            grid = (grid[0], 1, 1, grid[1])
        self._grid = grid
        self._sizes = {"threads": backend.threads, **GridKernel.sizes(grid)}
        self._keeps, self._kept = keep and x.value is y.value, None

    def _table(self, default: float = 0.0) -> Array:
        """Make a table of channels; those of the padding have 0."""
        table = np.zeros(self._grid[1] * self._grid[3], np.float32)
        table[: self.x.shape[1]] = default
        return table

    def _load(self, table: Array, blob: Blob | None) -> None:
        if blob is not None:
            table[: self.x.shape[1]] = blob.data.reshape(-1)

    def _sums(self) -> Array:
        """Make room for the sums of all tasks."""
        samples, outer, _, inner = self._grid
        return np.empty((samples, outer * inner), np.float32)

    def _collect(self, sums: Array, blob: Blob) -> None:
        """Add the sums of all tasks to a parameter's gradient."""
        total = sums.sum(axis=0)[: self.x.shape[1]]
        blob.diff[...] += total.reshape(blob.shape) if blob.shape else total.sum()

    def _run_forward(self, kernel: PReLUForward | ScaleShiftForward) -> None:
        if self._keeps and self._kept is None:  # a layer that another one fuses never runs
            self._kept = self.backend.empty(kernel.elements)
        kernel.kept = self._kept
        run_on(kernel, {"x": self.x.value}, {"y": self.y.value})

    def _run_backward(
        self, kernel: PReLUBackward | ScaleShiftBackward, data: bool, reads_x: bool = True
    ) -> None:
        read: dict[str, Tensor] = {"dy": self.y.gradient}
        if self._kept is None:
            read["x"] = self.x.value if reads_x else self.y.gradient
        else:
            kernel.x = self._kept
        kernel.dx = None
        run_on(kernel, read, {"dx": self.x.gradient} if data else {})


class PReLU(Channelwise):
    """y = x for x > 0, slope * x otherwise; one slope per channel, or one for all."""

    def __init__(self, backend: CpuBackend, x: Blob, y: Blob, slope: Blob) -> None:
        super().__init__(backend, x, y, keep=True)
        self.slope = slope
        self._slopes, self._products = self._table(), self._sums()
        self._forward = PReLUForward(**self._sizes, slopes=self._slopes)
        self._backward = PReLUBackward(**self._sizes, slopes=self._slopes, sums=self._products)

    def forward(self) -> None:
        self._load(self._slopes, self.slope)
        self._run_forward(self._forward)

    def backward(self, data: bool, weights: bool, bias: bool = False) -> None:
        self._load(self._slopes, self.slope)
        self._run_backward(self._backward, data)
        if weights:
            self._collect(self._products, self.slope)


class ScaleShift(Channelwise):
    """y = x * scale + shift, one of each per channel; either may be missing."""

    def __init__(
        self, backend: CpuBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None
    ) -> None:
        super().__init__(backend, x, y, keep=scale is not None)
        self.scale, self.shift = scale, shift
        self._factors, self._offsets = self._table(1.0), self._table()
        self._products = None if scale is None else self._sums()
        self._totals = None if shift is None else self._sums()
        self._forward = ScaleShiftForward(
            **self._sizes, factors=self._factors, offsets=self._offsets
        )
        self._backward = ScaleShiftBackward(**self._sizes, factors=self._factors)

    def forward(self) -> None:
        self._load(self._factors, self.scale)
        self._load(self._offsets, self.shift)
        self._run_forward(self._forward)

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        data = data and not (self.scale is None and self.x.gradient is self.y.gradient)
        kernel = self._backward
        kernel.products = self._products if weights else None
        kernel.totals = self._totals if bias else None
        if not data and kernel.products is None and kernel.totals is None:
            return
        self._load(self._factors, self.scale)
        self._run_backward(kernel, data, reads_x=kernel.products is not None)
        if self.scale is not None and weights:
            self._collect(self._products, self.scale)
        if self.shift is not None and bias:
            self._collect(self._totals, self.shift)
