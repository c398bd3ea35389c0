"""L1Loss: absolute differences, or their lengths at each place (FlowNet, DispNet)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.blob import Blob
from .base import Loss, register_layer
from .checks import need_same_shape


@register_layer("L1Loss")
class L1Loss(Loss):
    """loss = sum of |x0 - x1| / num; without x1, of |x0|. Where a difference is NaN, none counts.

    With l2_per_location, the sum is of sqrt(e + sum over channels of (x0 - x1)^2), e = epsilon;
    l2_prescale_by_channels takes the channels' mean instead. Differences (or lengths) below
    `plateau` have no gradient and count as 0 (or sqrt(e)). normalize_by_num_entries divides by the
    places that count instead of the samples.
    """

    bottoms = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.l1_loss_param
        if param.epsilon < 0 or param.plateau < 0:
            self.fail(
                f"epsilon and plateau must not be negative, got {param.epsilon:g} and "
                f"{param.plateau:g}"
            )

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape([bottom[0], bottom[-1]], top)
        need_same_shape(self, bottom)
        if self.param.l1_loss_param.l2_per_location and len(bottom[0].shape) < 2:
            self.fail(f"l2_per_location needs a channel axis, got {list(bottom[0].shape)}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, param = self.xp, self.param.l1_loss_param
        gap = bottom[0].data - bottom[1].data if len(bottom) > 1 else bottom[0].data
        counts = ~xp.isnan(gap)
        gap = xp.where(counts, gap, 0)
        self._divisor = self._entries(counts, bottom[0])
        if param.l2_per_location:
            losses, self._slope = self._lengths(gap)
        else:
            far = xp.abs(gap) >= param.plateau
            losses = xp.where(far, xp.abs(gap), 0)
            self._slope = xp.where(far, xp.sign(gap), 0)
        top[0].data[...] = losses.sum() / self._divisor

    def _entries(self, counts: Any, blob: Blob) -> Any:
        if not self.param.l1_loss_param.normalize_by_num_entries:
            return max(1, blob.num)
        channels = blob.shape[1] if len(blob.shape) > 1 else 1
        return (counts.sum() / max(1, channels)).clip(1, None).astype(self.backend.dtype)

    def _lengths(self, gap: Any) -> tuple[Any, Any]:
        """The length of the difference at each place, and its slope along each channel."""
        xp, param = self.xp, self.param.l1_loss_param
        share = 1 / gap.shape[1] if param.l2_prescale_by_channels else 1.0
        squares = share * (gap * gap).sum(axis=1, keepdims=True)
        far = squares >= param.plateau * param.plateau
        length = xp.sqrt(xp.where(far, squares, 0) + param.epsilon)
        moves = far & (length > 0)
        return length, xp.where(moves, share * gap / xp.where(moves, length, 1), 0)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        for blob, down, sign in zip(bottom, propagate_down, (1, -1), strict=False):
            if down:
                blob.diff[...] = self._slope * (sign * top[0].diff / self._divisor)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return True
