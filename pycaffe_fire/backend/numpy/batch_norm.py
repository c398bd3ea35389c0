"""Batch normalisation on plain arrays, with an optional scale, shift and ReLU after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import NormPlan, RunningMoments
from ..tensor import Array, Tensor

if TYPE_CHECKING:
    from . import NumPyBackend

CHANNELWISE = (0, 2)  # the axes that a channel's statistics run over, seen as (n, c, pixels)


class BatchNorm(NormPlan):
    """Keeps the normalised input, so that in place is right."""

    def __init__(
        self, backend: NumPyBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None,
        eps: float, global_stats: bool, relu: bool,
    ) -> None:  # fmt: skip
        self.xp, self.x, self.y, self.scale, self.shift = backend.xp, x, y, scale, shift
        self.eps, self.global_stats, self.relu = eps, global_stats, relu
        channels = x.shape[1] if len(x.shape) > 1 else 1
        self.mean, self.variance = backend.tensor((channels,)), backend.tensor((channels,))
        self._cut = (*x.shape[:2], -1) if len(x.shape) > 1 else (x.shape[0], 1, 1)
        if y is not x:
            self._lay_out(backend)

    def _lay_out(self, backend: NumPyBackend) -> None:
        self.y.lay_out(backend.plain_layout(self.y.shape))

    def _values(self, tensor: Tensor) -> Array:
        """A tensor as (n, channels, pixels), not to be written."""
        return tensor.array.reshape(self._cut)

    def _store(self, tensor: Tensor, values: Array) -> None:
        tensor.array[...] = values.reshape(tensor.shape)

    def forward(self, running: RunningMoments | None = None) -> None:
        x = self._values(self.x.value)
        if not self.global_stats:
            mean = x.mean(axis=CHANNELWISE, keepdims=True)
            centred = x - mean
            self.mean.array[...] = mean.reshape(-1)
            self.variance.array[...] = (centred * centred).mean(axis=CHANNELWISE)
        if running is not None:
            running.let_in(self.mean.array, self.variance.array)
        self._deviation = self.xp.sqrt(_column(self.variance.array) + self.eps)
        self._normed = (x - _column(self.mean.array)) / self._deviation
        y = self._normed if self.scale is None else self._normed * _column(self.scale.data)
        if self.shift is not None:
            y = y + _column(self.shift.data)
        self._positive = y > 0
        if self.relu:
            y = self.xp.where(self._positive, y, 0)
        self._store(self.y.value, y)

    def restore(self) -> None:
        if self.x.value is self.y.value:
            x = self._normed * self._deviation + _column(self.mean.array)
            self._store(self.x.value, x)

    def backward(self, data: bool, scale: bool, shift: bool) -> None:
        dy = self._values(self.y.gradient)
        if self.relu:
            dy = self.xp.where(self._positive, dy, 0)
        if self.shift is not None and shift:
            self.shift.diff[...] += dy.sum(axis=CHANNELWISE)
        if self.scale is not None:
            if scale:
                self.scale.diff[...] += (dy * self._normed).sum(axis=CHANNELWISE)
            dy = dy * _column(self.scale.data)
        if data:
            if not self.global_stats:
                along = (dy * self._normed).mean(axis=CHANNELWISE, keepdims=True)
                dy = dy - dy.mean(axis=CHANNELWISE, keepdims=True) - along * self._normed
            self._store(self.x.gradient, dy / self._deviation)


def _column(values: Array) -> Array:
    return values.reshape(1, -1, 1)
