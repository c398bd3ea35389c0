"""PReLU, and a factor and an offset per channel, on plain arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import ChannelPlan
from ..tensor import Array

if TYPE_CHECKING:
    from . import NumPyBackend


class Channelwise(ChannelPlan):
    """Sees blobs as (samples, channels, pixels); in place, a copy of the input is kept."""

    def __init__(self, backend: NumPyBackend, x: Blob, y: Blob) -> None:
        self.xp, self.x, self.y = backend.xp, x, y
        self._cut = (*x.shape[:2], -1) if x.count else x.shape
        self._kept: Array | None = None
        if x.value is not y.value:  # in place, the layout is the producer's to choose
            y.lay_out(backend.plain_layout(y.shape))

    def _input(self) -> Array:
        x = self.x.data if self._kept is None else self._kept
        return x.reshape(self._cut)

    def _keep(self) -> None:
        self._kept = self.x.data.copy() if self.x.value is self.y.value else None

    def _column(self, blob: Blob) -> Array:
        return blob.data.reshape(-1, 1)

    def _collect(self, products: Array, blob: Blob) -> None:
        axes = (0, 2) if blob.shape else (0, 1, 2)
        blob.diff[...] += products.sum(axis=axes).reshape(blob.shape)


class PReLU(Channelwise):
    """y = x for x > 0, slope * x otherwise."""

    def __init__(self, backend: NumPyBackend, x: Blob, y: Blob, slope: Blob) -> None:
        super().__init__(backend, x, y)
        self.slope = slope

    def forward(self) -> None:
        self._keep()
        x = self._input()
        y = self.xp.where(x > 0, x, self._column(self.slope) * x)
        self.y.data[...] = y.reshape(self.y.shape)

    def backward(self, data: bool, weights: bool, bias: bool = False) -> None:
        x, dy = self._input(), self.y.diff.reshape(self._cut)
        negative = x <= 0
        if weights:
            self._collect(self.xp.where(negative, x * dy, 0), self.slope)
        if data:
            dx = self.xp.where(negative, self._column(self.slope) * dy, dy)
            self.x.diff[...] = dx.reshape(self.x.shape)


class ScaleShift(Channelwise):
    """y = x * scale + shift; either may be missing."""

    def __init__(
        self, backend: NumPyBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None
    ) -> None:
        super().__init__(backend, x, y)
        self.scale, self.shift = scale, shift

    def forward(self) -> None:
        if self.scale is not None:
            self._keep()
        y = self._input()
        if self.scale is not None:
            y = y * self._column(self.scale)
        if self.shift is not None:
            y = y + self._column(self.shift)
        self.y.data[...] = y.reshape(self.y.shape)

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        dy = self.y.diff.reshape(self._cut)
        if bias and self.shift is not None:
            self._collect(dy, self.shift)
        if weights and self.scale is not None:
            self._collect(self._input() * dy, self.scale)
        if data:
            dx = dy if self.scale is None else dy * self._column(self.scale)
            self.x.diff[...] = dx.reshape(self.x.shape)
