"""SigmoidCrossEntropyLoss: independent yes/no targets, computed from scores."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from .. import schema
from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import Loss, register_layer
from .indices import truncated
from .labels import BATCH_SIZE, ignore_label, normalization_mode, normalizer


@register_layer("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLoss(Loss):
    """loss = -sum of (t log p + (1 - t) log(1 - p)) / normaliser, p = sigmoid(x).

    The normaliser is the batch size unless loss_param says otherwise.
    """

    also_reads = ("loss_param",)

    @classmethod
    def prediction(cls, param: LayerParameter) -> LayerParameter:
        return schema.LayerParameter(type="Sigmoid")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if bottom[0].count != bottom[1].count:
            self.fail(
                f"needs one target per score, got {list(bottom[1].shape)} for "
                f"{list(bottom[0].shape)}"
            )
        self._mode = normalization_mode(self.param.loss_param, BATCH_SIZE)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, x = self.xp, bottom[0].data
        targets = bottom[1].data.reshape(x.shape)
        losses = xp.maximum(x, 0) - x * targets + xp.log1p(xp.exp(-abs(x)))
        self._slope = 0.5 * xp.tanh(0.5 * x) + 0.5 - targets
        ignored = ignore_label(self.param.loss_param)
        valid = bottom[0].count
        if ignored is not None:  # targets are cut to whole numbers before they are compared
            counts = truncated(xp, targets) != ignored
            losses, self._slope = xp.where(counts, losses, 0), xp.where(counts, self._slope, 0)
            valid = int(counts.sum())
        fixed = self.param.loss_param.pre_fixed_normalizer
        self._divisor = normalizer(self._mode, bottom[0].num, prod(x.shape[1:]), valid, fixed)
        top[0].data[...] = losses.sum() / self._divisor

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        self.check_propagation(propagate_down)
        if propagate_down[0]:
            bottom[0].diff[...] = self._slope * (top[0].diff / self._divisor)
