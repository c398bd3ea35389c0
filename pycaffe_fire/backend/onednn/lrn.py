"""LRN across channels with a compiled kernel of our own.

oneDNN's is fast for one exponent and some sizes on some machines, keeps a workspace of twice the
tensor and falls to a reference loop elsewhere; ours serves every case alike.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ...blob import Blob
from ..base import Plan
from ..compiled import numba, use_threads
from ..kernels import lrn
from ..tensor import Array, Tensor

if TYPE_CHECKING:
    from . import OneDNNBackend


class LRN(Plan):
    """y = x * (k + alpha/size * sum of squares of neighbouring channels)^-beta."""

    @staticmethod
    def supports(x: Blob) -> bool:
        return numba is not None and x.value.layout.grid is not None

    def __init__(
        self, backend: OneDNNBackend, x: Blob, y: Blob, size: int, alpha: float, beta: float,
        k: float,
    ) -> None:  # fmt: skip
        self.backend, self.x, self.y = backend, x, y
        y.lay_out(x.value.layout)
        grid = x.value.layout.grid
        assert grid is not None
        self._grid = grid
        self._numbers = (size, np.float32(alpha / size), np.float32(-beta), np.float32(k))

    def forward(self) -> None:
        x, y = self.x.value, self.y.value
        x.sync()
        y.allocate()
        use_threads(self.backend.threads)
        lrn.forward(self._view(x), self._view(y), *self._numbers)
        y.fresh = 1

    def backward(self) -> None:
        x, dy, dx = self.x.value, self.y.gradient, self.x.gradient
        x.sync()
        dy.sync()
        dx.allocate()
        use_threads(self.backend.threads)
        lrn.backward(self._view(x), self._view(dy), self._view(dx), *self._numbers)
        dx.fresh = 1

    def _view(self, tensor: Tensor) -> Array:
        """Native storage as (samples, outer channels, pixels, inner channels)."""
        assert tensor.buffer is not None
        return tensor.buffer[: prod(self._grid)].reshape(self._grid)
