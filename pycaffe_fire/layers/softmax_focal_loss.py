"""SoftmaxWithFocalLoss: cross entropy in which what is right already hardly counts (RetinaNet)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.blob import Blob
from ..backend.plans import LossPlan
from .base import register_layer
from .softmax_loss import TINY, SoftmaxWithLoss


@register_layer("SoftmaxWithFocalLoss")
class SoftmaxWithFocalLoss(SoftmaxWithLoss):
    """loss = -sum of alpha (1 - p)^gamma log p / normaliser, p = softmax(x)[label]."""

    param_field = "softmax_focal_loss_param"
    also_reads = ("loss_param", "softmax_param")

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().setup(bottom, top)
        param = self.param.softmax_focal_loss_param
        if not param.gamma >= 0:
            self.fail(f"gamma must not be negative, got {param.gamma:g}")
        if self.param.loss_param.label_smoothing or self.param.loss_param.weight_by_label_freqs:
            self.fail(
                "loss_param.label_smoothing and weight_by_label_freqs go with SoftmaxWithLoss only"
            )

    def fast_op(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> LossPlan | None:
        return None

    def emphasis(self, picked: Any) -> tuple[Any, Any]:
        xp, param = self.xp, self.param.softmax_focal_loss_param
        missing = 1 - picked
        factor = missing**param.gamma
        # The derivative of the factor, p d/dp; 0 where p is 1, also for a gamma below 1.
        safe = xp.where(missing > 0, missing, 1)
        slope = xp.where(missing > 0, param.gamma * safe ** (param.gamma - 1), 0)
        pull = factor - slope * picked * xp.log(xp.maximum(picked, TINY))
        return param.alpha * factor, param.alpha * pull
