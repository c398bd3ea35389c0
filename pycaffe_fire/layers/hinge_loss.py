"""HingeLoss: one-vs-all margins, as in a support vector machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import schema
from ..backend.blob import Blob
from .base import Loss, register_layer
from .labels import Labels


@register_layer("HingeLoss")
class HingeLoss(Loss):
    """loss = sum of max(0, 1 - s x)^p / num with s = 1 for the label, -1 for others; p = 1 or 2."""

    compares_labels = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self.labels = Labels(self, bottom[0], bottom[1], axis=1, flat=True)
        self._squared = self.param.hinge_loss_param.norm == schema.HingeLossParameter.L2

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        read = self.labels
        self._classes, _ = read.read()
        x = bottom[0].data.reshape(read.outer, read.classes)
        self._margins = self.xp.maximum(1 + self._flipped(x), 0)
        losses = self._margins * self._margins if self._squared else self._margins
        top[0].data[...] = losses.sum() / max(1, read.outer)

    def _flipped(self, x: Any) -> Any:
        """x with the label's own score negated."""
        flipped = x.copy()
        own = self.xp.take_along_axis(x, self._classes, axis=1)
        self.xp.put_along_axis(flipped, self._classes, -own, axis=1)
        return flipped

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        self.check_propagation(propagate_down)
        if propagate_down[0]:
            slope = 2 * self._margins if self._squared else self.xp.sign(self._margins)
            scale = top[0].diff / max(1, self.labels.outer)
            bottom[0].diff[...] = (self._flipped(slope) * scale).reshape(bottom[0].shape)
