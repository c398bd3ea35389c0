"""EuclideanLoss: half the mean squared distance, for regression."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..backend.blob import Blob
from .base import Loss, register_layer


@register_layer("EuclideanLoss")
class EuclideanLoss(Loss):
    """loss = sum of (x0 - x1)^2 / (2 num); both bottoms may learn."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if prod(bottom[0].shape[1:]) != prod(bottom[1].shape[1:]):
            self.fail(
                f"both bottoms must have as many numbers per sample, got {list(bottom[0].shape)} "
                f"and {list(bottom[1].shape)}"
            )

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].data
        self._gap = x - bottom[1].data.reshape(x.shape)
        top[0].data[...] = (self._gap * self._gap).sum() / (2 * max(1, bottom[0].num))

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        for blob, down, sign in zip(bottom, propagate_down, (1, -1), strict=True):
            if down:
                scale = sign * top[0].diff / max(1, bottom[0].num)
                blob.diff[...] = (self._gap * scale).reshape(blob.shape)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return True
