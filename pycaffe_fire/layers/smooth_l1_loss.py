"""SmoothL1Loss: squared near 0, absolute beyond (Fast R-CNN's box regression)."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Loss, register_layer
from .checks import need_same_shape


@register_layer("SmoothL1Loss")
class SmoothL1Loss(Loss):
    """loss = sum of w_out f(w_in (x0 - x1)) / num; bottoms 2 and 3 are w_in and w_out.

    f(d) = (sigma d)^2 / 2 where |d| < 1 / sigma^2, |d| - 1 / (2 sigma^2) elsewhere.
    """

    bottoms = (2, 4)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        sigma = self.param.smooth_l1_loss_param.sigma
        if sigma <= 0:
            self.fail(f"sigma must be positive, got {sigma:g}")
        self._sigma2 = float(sigma) ** 2

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        need_same_shape(self, bottom)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, sigma2 = self.xp, self._sigma2
        gap = bottom[0].data - bottom[1].data
        if len(bottom) > 2:
            gap = gap * bottom[2].data
        size = abs(gap)
        near = size < 1 / sigma2
        losses = xp.where(near, 0.5 * sigma2 * gap * gap, size - 0.5 / sigma2)
        self._slope = xp.where(near, sigma2 * gap, xp.sign(gap))
        if len(bottom) > 2:
            self._slope = self._slope * bottom[2].data
        if len(bottom) > 3:
            losses, self._slope = losses * bottom[3].data, self._slope * bottom[3].data
        top[0].data[...] = losses.sum() / max(1, bottom[0].num)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        for blob, down in zip(bottom[2:], propagate_down[2:], strict=True):
            if down:  # weights that Faster R-CNN's layers make of proposals: as Caffe, none
                blob.gradient.clear()
        for blob, down, sign in zip(bottom, propagate_down, (1, -1), strict=False):
            if down:
                blob.diff[...] = self._slope * (sign * top[0].diff / max(1, bottom[0].num))

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index < 2
