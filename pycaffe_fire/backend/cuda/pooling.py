"""MAX and AVE pooling by kernels; MAX always knows its mask, because backward needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..plans import PoolingPlan, Window
from ..tensor import Array
from .geometry import AXES, geometry
from .tensor import can_move, follow, own

if TYPE_CHECKING:
    from . import CudaBackend


class Pooling(PoolingPlan):
    @staticmethod
    def supports(x: Blob, method: str, window: Window) -> bool:
        return method != "AVE_INSIDE" and 1 <= len(window.kernel) <= AXES and 0 not in x.shape

    def __init__(self, backend: CudaBackend, x: Blob, y: Blob, method: str, window: Window) -> None:
        self.backend, self.kernels = backend, backend.kernels
        self.x, self.y, self.method = x, y, method
        axes = len(window.kernel)
        follow(x, y)
        can_move(y)
        self._last = own(y.value).last or own(x.value).last
        self._names = "_last" if self._last else ""
        self._geometry = geometry(backend.xp, 1, x.shape[-axes:], y.shape[-axes:], window)
        size = y.count if method == "MAX" else 0
        self._mask = backend.keep(size, np.int32)

    def forward(self) -> None:
        kind = self.y.value.kind
        x = own(self.x.value).read_flat(kind, self._last)
        y = own(self.y.value).write_in(self._last)
        where = self._channels(y.pitch), self._geometry, y.pitch
        if self.method == "MAX":
            kernel = self.kernels[f"max_pool{self._names}", kind]
            kernel(self.y.count, x, *where, y.array, self._mask())
        else:
            kernel = self.kernels[f"average_pool{self._names}", kind]
            kernel(self.y.count, x, *where, y.array)

    def backward(self) -> None:
        kind = self.x.gradient.kind
        dy = own(self.y.gradient).read(kind, self._last)
        dx = own(self.x.gradient).write_flat(self._last)
        where = self._channels(dy.pitch), self._geometry, dy.pitch
        if self.method == "MAX":
            kernel = self.kernels[f"max_pool{self._names}_backward", kind]
            kernel(dx.size, dy.array, self._mask(), *where, dx)
        else:
            kernel = self.kernels[f"average_pool{self._names}_backward", kind]
            kernel(dx.size, dy.array, *where, dx)

    def _channels(self, pitch: int) -> int:
        """What kernels want to know; those for plain images only where there are gaps."""
        return self.x.shape[1] if self._last or pitch else 1

    @property
    def mask(self) -> Array:
        if not self._last:
            return self._mask().reshape(self.y.shape)
        samples, channels, *sizes = self.y.shape
        by_pixel = self._mask().reshape(samples, *sizes, channels)
        return self.backend.xp.moveaxis(by_pixel, -1, 1)
