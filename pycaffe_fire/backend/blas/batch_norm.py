"""Batch normalisation of rows, with an optional scale, shift and ReLU after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..blob import Blob
from ..kernels import row_norm as kernels
from ..kernels.tiles import LANES
from ..numpy.batch_norm import BatchNorm
from ..plans import RunningMoments
from ..tensor import Array
from .elementwise import Rows
from .layouts import read, writing

if TYPE_CHECKING:
    from . import BlasBackend


class RowsBatchNorm(Rows, BatchNorm):
    """NumPy's; rows are samples of one pixel."""


class VectorBatchNorm(RowsBatchNorm):
    """In kernels, on threads that share the blocks of rows."""

    @staticmethod
    def suits(x: Blob) -> bool:
        return x.shape[1] % LANES == 0

    def __init__(
        self, backend: BlasBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None,
        eps: float, global_stats: bool, relu: bool,
    ) -> None:  # fmt: skip
        super().__init__(backend, x, y, scale, shift, eps, global_stats, relu)
        self.backend, self._slope = backend, np.float32(0 if relu else 1)
        self._rows = x.count // x.shape[1]
        self._blocks = kernels.blocks(self._rows, x.shape[1])
        self._normal = np.empty((0, x.shape[1]), np.float32)

    def _per_block(self) -> tuple[Array, Array]:
        """Room for two sums over each block."""
        first, second = np.empty((2, self._blocks, self.x.shape[1]), np.float32)
        return first, second

    def _table(self, blob: Blob | None, default: float) -> Array:
        if blob is None:
            return np.full(self.x.shape[1], default, np.float32)
        return np.ascontiguousarray(blob.data.reshape(-1))

    def forward(self, running: RunningMoments | None = None) -> None:
        x = read(self.x.value)
        if not self.global_stats:
            self._take_moments(x)
        if running is not None:
            running.let_in(self.mean.array, self.variance.array)
        deviation = np.sqrt(self.variance.array + np.float32(self.eps))
        if not self._normal.size:
            self._normal = np.empty_like(x)
        tables = (
            self.mean.array, np.float32(1) / deviation, self._table(self.scale, 1),
            self._table(self.shift, 0),
        )  # fmt: skip
        with writing(self.y.value) as y:

            def run(first: int, stop: int) -> None:
                kernels.forward(x, self._normal, y, first, stop, tables, self._slope)

            self.backend.share(self._blocks, run)
        # As `restore` wants them.
        self._normed, self._deviation = self._normal[:, :, None], deviation.reshape(1, -1, 1)

    def _take_moments(self, x: Array) -> None:
        means, spreads = self._per_block()

        def run(first: int, stop: int) -> None:
            kernels.moments(x, first, stop, means, spreads)

        self.backend.share(self._blocks, run)
        counts = np.full((self._blocks, 1), kernels.rows_of_block(x.shape[1]), np.float64)
        counts[-1] = self._rows - counts[:-1].sum()
        mean = (counts * means).sum(axis=0) / self._rows
        spread = spreads.sum(axis=0, dtype=np.float64) + (counts * (means - mean) ** 2).sum(axis=0)
        self.mean.array[...] = mean
        self.variance.array[...] = spread / self._rows

    def backward(self, data: bool, scale: bool, shift: bool) -> None:
        dy = read(self.y.gradient)
        scales, shifts = self._table(self.scale, 1), self._table(self.shift, 0)
        sums, crossed = self._sum_gradients(dy, (scales, shifts))
        if self.shift is not None and shift:
            self.shift.diff[...] += sums
        if self.scale is not None and scale:
            self.scale.diff[...] += crossed
        if not data:
            return
        level, along = sums / np.float32(self._rows), crossed / np.float32(self._rows)
        if self.global_stats:
            level, along = np.zeros_like(sums), np.zeros_like(sums)
        factor = scales / self._deviation.reshape(-1)
        tables = scales, shifts, factor, level, along
        with writing(self.x.gradient) as dx:

            def run(first: int, stop: int) -> None:
                kernels.backward(self._normal, dy, dx, first, stop, tables, self._slope)

            self.backend.share(self._blocks, run)

    def _sum_gradients(self, dy: Array, tables: Any) -> tuple[Array, Array]:
        """Of each channel: that of the gradient behind the ReLU, and of its products with x."""
        sums, crossed = self._per_block()

        def run(first: int, stop: int) -> None:
            kernels.gradient_sums(self._normal, dy, first, stop, tables, sums, crossed, self._slope)

        self.backend.share(self._blocks, run)
        both = (each.sum(axis=0, dtype=np.float64) for each in (sums, crossed))
        first, second = (total.astype(np.float32) for total in both)
        return first, second
