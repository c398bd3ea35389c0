"""Batch normalisation whose result is added to another blob, with the ReLU after the sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..compiled import available, use_threads
from ..kernels import norm_sum as kernels
from ..kernels.sweeps import WHOLE
from ..plans import NormSumPlan, RunningMoments
from ..tensor import NATIVE, Array, Tensor
from .add import Sum
from .grids import grid_of, read, seen, write_normal, written
from .layouts import OneDNNTensor, Program

if TYPE_CHECKING:
    from . import OneDNNBackend

IN_CACHE = 2**18  # elements of one tensor that are gone through at a time
NOTHING = np.empty((0, 0, 0, 0), np.float32)
NO_RELU = 1.0  # the slope below 0 that changes nothing


class NormSum(NormSumPlan):
    """All blobs lie alike. In place, the blob keeps the input until somebody wants to see more."""

    @staticmethod
    def supports(x: Blob, addend: Blob, total: Blob) -> bool:
        layout = x.value.layout
        alike = addend.value.layout == layout and total.value.layout == layout
        return available() and alike and 0 not in x.shape and grid_of(layout)[3] % WHOLE == 0

    def __init__(
        self, backend: OneDNNBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None,
        eps: float, global_stats: bool, addend: Blob, total: Blob, relu: float | None,
        readers: Sequence[Blob],
    ) -> None:  # fmt: skip
        self.backend, self.x, self.y, self.scale, self.shift = backend, x, y, scale, shift
        self.addend, self.total = addend, total
        self.mean, self.variance = backend.tensor(x.shape[1:2]), backend.tensor(x.shape[1:2])
        self._grid, self._channels = grid_of(x.value.layout), x.shape[1]
        num, outer, pixels, block = self._grid
        self._blocks = max(1, IN_CACHE // (num * pixels * block))
        self._own, self._eps = not global_stats, eps
        self._slope = np.float32(NO_RELU if relu is None else relu)
        tables = np.zeros((9, outer * block), np.float32)
        self._mean, self._variance, self._scale, self._shift, self._factors = tables[:5]
        self._sums, self._products, self._along, self._level = tables[5:]
        self._scale[: self._channels] = 1
        # Of every sample: means and squares, or sums and products.
        self._firsts, self._seconds = np.empty((2, num * outer * block), np.float32)
        self._source: Tensor = x.value
        if y.value is x.value:
            self._source = OneDNNTensor(backend, x.shape)
            self._source.lay_out(x.value.layout)
        self._parts = [blob.gradient for blob in readers]
        self._extra = Sum(backend, self._parts, total.gradient) if len(self._parts) > 2 else None
        self._copies: dict[int, Program] = {}
        backend.expect([kernels.forward], [kernels.backward])

    def _channel(self, table: Array) -> Array:
        """The numbers of the real channels in a table, to read or to write."""
        return table[: self._channels]

    def forward(self, running: RunningMoments | None = None) -> None:
        x, addend = self._take_input(), read(self.addend.value)
        if self.scale is not None:
            self._channel(self._scale)[...] = self.scale.data.reshape(-1)
        if self.shift is not None:
            self._channel(self._shift)[...] = self.shift.data.reshape(-1)
        if not self._own:
            self._channel(self._mean)[...] = self.mean.array
            self._channel(self._variance)[...] = self.variance.array
        use_threads(self.backend.threads)
        kernels.forward(
            x, addend, written(self.total.value), self._mean, self._variance, self._scale,
            self._shift, self._factors, self._firsts, self._seconds, self._eps, self._slope,
            self._blocks, self._own,
        )  # fmt: skip
        if self._own:
            self.mean.array[...] = self._channel(self._mean)
            self.variance.array[...] = self._channel(self._variance)
        if running is not None:
            running.let_in(self.mean.array, self.variance.array)

    def _take_input(self) -> Array:
        value = self.x.value
        value.sync()
        if self._source is not value:
            self._source.bind(value.buffer)
            self._source.fresh = NATIVE
        elif self.y.value.buffer is not None:
            self.y.value.release()  # somebody has looked at the last pass
        return seen(value)

    def show(self) -> None:
        value = self.y.value
        if self._source is not self.x.value:
            value.bind(None)  # where the input is, and stays for backward
        write_normal(seen(self._source), self._mean, self._factors, self._shift, written(value))

    def hide(self) -> None:
        if self._source is not self.x.value:
            self.x.value.bind(self._source.buffer)
            self.x.value.fresh = NATIVE

    def backward(self, data: bool, scale: bool, shift: bool, addend: bool) -> None:
        if self._extra is not None:
            self._extra()
        parts = self._parts if self._extra is None else [self.total.gradient]
        one, *others = (read(part) for part in parts)
        dx = written(self.x.gradient) if data else NOTHING
        use_threads(self.backend.threads)
        kernels.backward(
            seen(self._source), read(self.total.value), one,
            others[0] if others else NOTHING, written(self.total.gradient), dx, self._mean,
            self._variance, self._factors, self._firsts, self._seconds, self._sums, self._products,
            self._along, self._level, self._eps, self._slope, self._blocks, self._own,
        )  # fmt: skip
        deviations = np.sqrt(self._channel(self._variance) + self._eps)
        if scale and self.scale is not None:
            products = self._channel(self._products) / deviations
            self.scale.diff[...] += products.reshape(self.scale.shape)
        if shift and self.shift is not None:
            self.shift.diff[...] += self._channel(self._sums).reshape(self.shift.shape)
        if addend:
            self._copy_gradient(self.addend.gradient)
        if self.y.value is not self.x.value:
            self._copy_gradient(self.y.gradient)

    def _copy_gradient(self, target: Tensor) -> None:
        """Give the sum's gradient to something that was added, unless they share memory."""
        source = self.total.gradient
        target.allocate()
        assert source.buffer is not None and target.buffer is not None
        if source.buffer.ctypes.data == target.buffer.ctypes.data:
            target.fresh = NATIVE
            return
        if id(target) not in self._copies:
            program = self._copies[id(target)] = Program(self.backend)
            program.reorder(source, target)
        self._copies[id(target)].run()
