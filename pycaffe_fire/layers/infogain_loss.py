"""InfogainLoss: softmax loss in which a matrix says how much each confusion matters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import schema
from ..backend.blob import Blob
from ..errors import FireError
from ..schema.proto import LayerParameter
from .base import Loss, register_layer
from .labels import LOG_THRESHOLD, Labels, ignore_label, normalization_mode, normalizer


@register_layer("InfogainLoss")
class InfogainLoss(Loss):
    """loss = -sum over l of H[label, l] log softmax(x)[l] / normaliser.

    H (classes x classes) is the third bottom or read from `source`; a second top is the softmax.
    """

    also_reads = ("softmax_param", "loss_param")
    compares_labels = True
    bottoms = (2, 3)
    tops = (1, 2)

    @classmethod
    def prediction(cls, param: LayerParameter) -> LayerParameter:
        made = schema.LayerParameter(type="Softmax")
        if param.infogain_loss_param.HasField("axis"):
            made.softmax_param.axis = param.infogain_loss_param.axis
        return made

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        source = self.param.infogain_loss_param.source
        if self.param.loss_param.HasField("normalize"):
            self.fail("normalize is too old for this layer; use normalization")
        self._stored: Any = None
        if len(bottom) < 3:
            if not source:
                self.fail("needs the infogain matrix as third bottom or as a file in source")
            try:
                self._stored = self.xp.asarray(schema.read_blob(source))
            except FireError as error:
                self.fail(f"cannot read the infogain matrix: {error}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self._axis = self.axis(bottom[0], self.param.infogain_loss_param.axis)
        ignore = ignore_label(self.param.loss_param)
        self.labels = Labels(self, bottom[0], bottom[1], self._axis, ignore=ignore)
        self._mode = normalization_mode(self.param.loss_param)
        classes = self.labels.classes
        count = bottom[2].count if len(bottom) > 2 else self._stored.size
        if count != classes * classes:
            self.fail(f"the infogain matrix must be {classes} x {classes}, got {count} numbers")
        if len(top) > 1:
            top[1].reshape_like(bottom[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, read, x = self.xp, self.labels, bottom[0].data
        prob = self.backend.softmax(x, self._axis)
        if len(top) > 1:
            top[1].data[...] = prob
        labels, valid = read.read()
        matrix = bottom[2].data if len(bottom) > 2 else self._stored
        rows = matrix.reshape(read.classes, read.classes).astype(x.dtype)[labels]
        self._gains = xp.where(valid[:, :, None], rows, 0).transpose(0, 2, 1)
        self._prob = prob.reshape(self._gains.shape)
        logs = xp.log(xp.maximum(self._prob, LOG_THRESHOLD))
        fixed = self.param.loss_param.pre_fixed_normalizer
        self._divisor = normalizer(self._mode, read.outer, read.inner, int(valid.sum()), fixed)
        top[0].data[...] = -(self._gains * logs).sum() / self._divisor

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        self.check_propagation(propagate_down)
        if len(bottom) > 2 and propagate_down[2]:
            self.fail("cannot backpropagate to its infogain matrix (bottom 2)")
        if propagate_down[0]:
            gains = self._gains
            grad = self._prob * gains.sum(axis=1, keepdims=True) - gains
            bottom[0].diff[...] = (grad * (top[0].diff / self._divisor)).reshape(bottom[0].shape)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index == 0
