"""TripletLoss: a sample should be nearer to one of its kind than to any other (FaceNet)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.blob import Blob
from .base import Loss, register_layer
from .checks import need_same_shape


@register_layer("TripletLoss")
class TripletLoss(Loss):
    """loss = sum of w max(0, margin + |a - p|^2 - |a - n|^2) / (2 num).

    Bottoms are samples a, others of their kind p, others of another kind n, and if you like one
    weight w for each triplet.
    """

    bottoms = (3, 4)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        need_same_shape(self, bottom[:3])
        if len(bottom[0].shape) < 2:
            self.fail(f"needs one vector per sample, got {list(bottom[0].shape)}")
        if len(bottom) > 3 and bottom[3].count != bottom[0].num:
            self.fail(
                f'needs one weight per triplet ({bottom[0].num}), got "{bottom[3].name}" '
                f"{list(bottom[3].shape)}"
            )

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, num = self.xp, bottom[0].num
        anchor, positive, negative = (blob.data.reshape(num, -1) for blob in bottom[:3])
        self._near, self._far = anchor - positive, anchor - negative
        lack = (
            self.param.triplet_loss_param.margin
            + (self._near * self._near).sum(axis=1)
            - (self._far * self._far).sum(axis=1)
        )
        weights: Any = bottom[3].data.reshape(num) if len(bottom) > 3 else 1
        self._active = xp.where(lack > 0, weights, 0).astype(lack.dtype)
        top[0].data[...] = (self._active * lack).sum() / (2 * max(1, num))

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if any(propagate_down[3:]):
            self.fail("cannot backpropagate to its weights (bottom 3)")
        scale = (self._active * (top[0].diff / max(1, bottom[0].num)))[:, None]
        gradients = (self._near - self._far, -self._near, self._far)
        for blob, down, gradient in zip(bottom, propagate_down, gradients, strict=False):
            if down:
                blob.diff[...] = (scale * gradient).reshape(blob.shape)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index < 3
