"""SoftmaxWithLoss: multinomial logistic loss of a softmax, computed together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from .. import schema
from ..backend.blob import Blob
from ..backend.plans import LabelLoss, LossPlan
from ..schema.proto import LayerParameter
from .base import Loss, register_layer
from .labels import Labels, ignore_label, normalization_mode, normalizer

TINY = np.finfo(np.float32).tiny


@register_layer("SoftmaxWithLoss")
class SoftmaxWithLoss(Loss):
    """loss = -sum of log softmax(x)[label] / normaliser; a second top holds the softmax.

    With weight_by_label_freqs, a sample's loss is multiplied by the class_weighting of its label.
    With loss_param.label_smoothing = e, labels are (1 - e) of one class and e / K of each of all K.
    """

    param_field = "softmax_param"
    compares_labels = True
    also_reads: ClassVar[tuple[str, ...]] = ("loss_param",)
    tops = (1, 2)

    @classmethod
    def prediction(cls, param: LayerParameter) -> LayerParameter:
        made = schema.LayerParameter(type="Softmax")
        if param.HasField("softmax_param"):
            made.softmax_param.CopyFrom(param.softmax_param)
        return made

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().setup(bottom, top)
        self._smoothing = float(self.param.loss_param.label_smoothing)
        if not 0 <= self._smoothing < 1:
            self.fail(f"loss_param.label_smoothing must lie in [0, 1), got {self._smoothing:g}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self._axis = self.axis(bottom[0], self.param.softmax_param.axis, "softmax_param.axis")
        self._weights = self._class_weights(bottom[0].shape[self._axis])
        ignore = ignore_label(self.param.loss_param)
        self.labels = Labels(self, bottom[0], bottom[1], self._axis, ignore=ignore)
        self._mode = normalization_mode(self.param.loss_param)
        if len(top) > 1:
            top[1].reshape_like(bottom[0])
        self._plan = self.fast_op(bottom, top)

    def fast_op(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> LossPlan | None:
        """One op of the backend's for all of it, where there is one."""
        read, fixed = self.labels, self.param.loss_param.pre_fixed_normalizer
        divisor = normalizer(self._mode, read.outer, read.inner, None, fixed)
        case = LabelLoss(
            bottom[1], read.ignore, self._smoothing, self._weights, divisor, read.refuse
        )
        return self.backend.softmax_loss(bottom[0], top[0], case) if read.inner == 1 else None

    def _class_weights(self, classes: int) -> Any:
        """One factor per class, or None."""
        param = self.param.loss_param
        if not param.weight_by_label_freqs:
            if param.class_weighting:
                self.fail("class_weighting goes with weight_by_label_freqs: true")
            return None
        if len(param.class_weighting) != classes:
            self.fail(
                f"weight_by_label_freqs needs one class_weighting for each of the {classes} "
                f"classes, got {len(param.class_weighting)}"
            )
        return self.xp.asarray(list(param.class_weighting), self.backend.dtype)

    def emphasis(self, picked: Any) -> tuple[Any, Any]:
        """What each prediction's loss, and its gradient, is multiplied by; None: by nothing.

        `picked` are the probabilities of the labels, of shape (outer, inner).
        """
        weights = None if self._weights is None else self._weights[self._classes]
        return weights, weights

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._plan is not None:
            self._plan.forward()
            if len(top) > 1:
                top[1].data[...] = self._plan.prob
            return
        xp, read = self.xp, self.labels
        self._prob = self.backend.softmax(bottom[0].data, self._axis)
        self._classes, self._valid = read.read()
        prob = self._prob.reshape(read.outer, read.classes, read.inner)
        picked = xp.take_along_axis(prob, self._classes[:, None, :], axis=1)[:, 0, :]
        losses = -xp.log(xp.maximum(picked, TINY))
        if self._smoothing:
            others = -xp.log(xp.maximum(prob, TINY)).mean(axis=1)
            losses = (1 - self._smoothing) * losses + self._smoothing * others
        factor, self._pull = self.emphasis(picked)
        losses = losses if factor is None else losses * factor
        self._losses = xp.where(self._valid, losses, 0)  # before they are divided
        self._normalizer = normalizer(
            self._mode, read.outer, read.inner, self._valid.sum(),
            self.param.loss_param.pre_fixed_normalizer,
        )  # fmt: skip
        top[0].data[...] = self._losses.sum() / self._normalizer
        if len(top) > 1:
            top[1].data[...] = self._prob

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        self.check_propagation(propagate_down)
        if not propagate_down[0]:
            return
        if self._plan is not None:
            self._plan.backward()
            return
        xp, read = self.xp, self.labels
        grad = self._prob.reshape(read.outer, read.classes, read.inner).copy()
        at = self._classes[:, None, :]
        picked = xp.take_along_axis(grad, at, axis=1)
        xp.put_along_axis(grad, at, picked - (1 - self._smoothing), axis=1)
        if self._smoothing:
            grad -= self._smoothing / read.classes
        scale = top[0].diff / self._normalizer
        if self._pull is not None:
            scale = scale * self._pull
        grad *= xp.where(self._valid, scale, 0).astype(grad.dtype)[:, None, :]
        bottom[0].diff[...] = grad.reshape(bottom[0].shape)
