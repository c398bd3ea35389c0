"""MultinomialLogisticLoss: of probabilities, where SoftmaxWithLoss takes scores."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Loss, register_layer
from .labels import LOG_THRESHOLD, Labels


@register_layer("MultinomialLogisticLoss")
class MultinomialLogisticLoss(Loss):
    """loss = -sum of log p[label] / num."""

    compares_labels = True

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self.labels = Labels(self, bottom[0], bottom[1], axis=1, flat=True)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, read = self.xp, self.labels
        self._classes, _ = read.read()
        p = bottom[0].data.reshape(read.outer, read.classes)
        self._picked = xp.maximum(xp.take_along_axis(p, self._classes, axis=1), LOG_THRESHOLD)
        top[0].data[...] = -xp.log(self._picked).sum() / max(1, read.outer)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        self.check_propagation(propagate_down)
        if propagate_down[0]:
            dx, read = bottom[0].diff, self.labels
            dx[...] = 0
            scale = -top[0].diff / max(1, read.outer)
            rows = dx.reshape(read.outer, read.classes)
            self.xp.put_along_axis(rows, self._classes, scale / self._picked, axis=1)
