"""ContrastiveLoss: brings pairs of a kind together and keeps others apart (siamese nets)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..backend.blob import Blob
from .base import Loss, register_layer
from .checks import need_same_shape
from .indices import NOT_AN_INDEX, number_text, truncated

NEAR_ZERO = 1e-4  # keeps the gradient finite where two samples coincide


@register_layer("ContrastiveLoss")
class ContrastiveLoss(Loss):
    """loss = sum of (y d^2 + (1 - y) max(margin - d, 0)^2) / (2 num), d = |x0 - x1|.

    With legacy_version the second term is max(margin - d^2, 0).
    """

    bottoms = (3, 3)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        first, _, similar = bottom
        need_same_shape(self, bottom[:2])
        if len(first.shape) < 2 or prod(first.shape[2:]) != 1:
            self.fail(f"needs one vector per sample, got {list(first.shape)}")
        if similar.count != first.shape[0]:
            self.fail(
                f'needs one label per pair ({first.shape[0]}), got "{similar.name}" '
                f"{list(similar.shape)}"
            )

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, param, num = self.xp, self.param.contrastive_loss_param, bottom[0].shape[0]
        x = bottom[0].data.reshape(num, bottom[0].shape[1])
        gap = self._gap = x - bottom[1].data.reshape(x.shape)
        squared = (gap * gap).sum(axis=1)
        similar = self._similar(bottom[2])
        if param.legacy_version:
            room = param.margin - squared
            apart = xp.maximum(room, 0)
            pull = xp.where(room > 0, -1, 0)
        else:
            distance = xp.sqrt(squared)
            room = param.margin - distance
            apart = xp.maximum(room, 0) ** 2
            pull = xp.where(room > 0, -room / (distance + NEAR_ZERO), 0)
        self._pull = xp.where(similar, 1, pull).astype(gap.dtype)
        top[0].data[...] = xp.where(similar, squared, apart).sum() / (2 * max(1, num))

    def _similar(self, blob: Blob) -> Any:
        """True for pairs of a kind, whose label is not 0."""
        given = blob.data.reshape(-1)
        labels = truncated(self.xp, given)
        wrong = labels == NOT_AN_INDEX
        if wrong.any():
            at = int(self.xp.nonzero(wrong)[0][0])
            self.fail(
                f'label {number_text(given[at])} of pair {at} in blob "{blob.name}" makes no '
                f"sense: expected is 1 (pairs of a kind) or 0 (others)"
            )
        return labels != 0

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[2]:
            self.fail("cannot backpropagate to its labels (bottom 2)")
        for blob, down, sign in zip(bottom, propagate_down, (1, -1), strict=False):
            if down:
                scale = sign * top[0].diff / max(1, blob.shape[0])
                blob.diff[...] = (self._gap * (self._pull * scale)[:, None]).reshape(blob.shape)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 2
