"""Dropout with a compiled kernel that draws its mask anew in backward instead of keeping it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...blob import Blob
from ..base import Draw, MaskedPlan
from ..compiled import numba, use_threads
from ..kernels import dropout
from ..tensor import Tensor

if TYPE_CHECKING:
    from . import OneDNNBackend


class Dropout(MaskedPlan):
    """Works in place and on blocked layouts."""

    @staticmethod
    def supports(x: Blob) -> bool:
        return numba is not None and x.value.layout.grid is not None

    def __init__(
        self, backend: OneDNNBackend, x: Blob, y: Blob, ratio: float, scale: float
    ) -> None:
        self.backend, self.x, self.y = backend, x, y
        y.lay_out(x.value.layout)
        grid = x.value.layout.grid
        assert grid is not None
        if x.value.layout.is_plain:  # one long run of draws per sample
            grid = (grid[0], 1, x.count // max(grid[0], 1), 1)
        self._grid = grid
        self._numbers = (np.float32(ratio), np.float32(scale))
        self._draw = Draw(0, 0, 0)

    def forward(self, draw: Draw) -> None:
        self._draw = draw
        self._run(self.x.value, self.y.value)

    def backward(self) -> None:
        self._run(self.y.gradient, self.x.gradient)

    def _run(self, source: Tensor, target: Tensor) -> None:
        source.sync()
        target.allocate()
        use_threads(self.backend.threads)
        draw = self._draw
        counters = np.uint64(draw.key), np.uint64(draw.step), np.uint64(draw.first_sample)
        dropout.apply(source.buffer, target.buffer, self._grid, *self._numbers, *counters)
        target.fresh = 1
