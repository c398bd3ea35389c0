"""MAX and AVE pooling by kernels; MAX always knows its mask, because backward needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..base import PoolingPlan, Window
from ..blob import Blob
from ..tensor import Array
from .geometry import AXES, geometry
from .tensor import source, target

if TYPE_CHECKING:
    from . import CudaBackend


class Pooling(PoolingPlan):
    @staticmethod
    def supports(x: Blob, method: str, window: Window) -> bool:
        return method != "AVE_INSIDE" and 1 <= len(window.kernel) <= AXES and 0 not in x.shape

    def __init__(self, backend: CudaBackend, x: Blob, y: Blob, method: str, window: Window) -> None:
        self.kernels, self.x, self.y, self.method = backend.kernels, x, y, method
        axes = len(window.kernel)
        self._geometry = geometry(backend.xp, 1, x.shape[-axes:], y.shape[-axes:], window)
        size = y.count if method == "MAX" else 0
        self._mask = backend.keep(size, np.int32)

    def forward(self) -> None:
        kind = self.y.value.kind
        x, y = source(self.x.value, kind), target(self.y.value)
        if self.method == "MAX":
            self.kernels["max_pool", kind](y.size, x, self._geometry, y, self._mask())
        else:
            self.kernels["average_pool", kind](y.size, x, self._geometry, y)

    def backward(self) -> None:
        kind = self.x.gradient.kind
        dy, dx = source(self.y.gradient, kind), target(self.x.gradient)
        if self.method == "MAX":
            self.kernels["max_pool_backward", kind](dx.size, dy, self._mask(), self._geometry, dx)
        else:
            self.kernels["average_pool_backward", kind](dx.size, dy, self._geometry, dx)

    @property
    def mask(self) -> Array:
        return self._mask().reshape(self.y.shape)
