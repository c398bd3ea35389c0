"""CenterLoss: keeps the features of a class near their centre, which is learned along."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import Loss, register_layer
from .labels import Labels
from .scatter import add_rows


@register_layer("CenterLoss")
class CenterLoss(Loss):
    """loss = sum of |x - centre of its class|^2 / (2 num).

    As in the paper (Wen et al., 2016), a centre does not follow the loss's gradient: its `diff` is
    the sum of (centre - x) over the batch's samples of its class, divided by 1 + their number.
    """

    @classmethod
    def outputs(cls, param: LayerParameter) -> int | None:
        return None

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.center_loss_param
        if not param.num_output:
            self.fail("needs num_output, the number of classes")
        self._axis = self.axis(bottom[0], param.axis)
        size = prod(bottom[0].shape[self._axis :])
        self.add_param((param.num_output, size), param.center_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        classes, size = self.blobs[0].shape
        if prod(bottom[0].shape[self._axis :]) != size:
            self.fail(
                f"has centres of {size} numbers, got {list(bottom[0].shape)} from axis {self._axis}"
            )
        rows = bottom[0].count // max(size, 1)
        scores = Blob(self.backend, (rows, classes), "a score for each centre")
        self.labels = Labels(self, scores, bottom[1], 1)

    def multiply_adds(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> int:
        return 0

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        labels, _ = self.labels.read()
        self._classes = labels.reshape(-1)
        centres = self.blobs[0].data
        self._gap = bottom[0].data.reshape(self._classes.size, -1) - centres[self._classes]
        rows = max(1, self._classes.size)
        top[0].data[...] = (self._gap * self._gap).sum() / (2 * rows)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        self.check_propagation(propagate_down)
        if self.param_propagate_down[0]:
            xp, classes = self.xp, self.blobs[0].shape[0]
            seen = 1 + xp.bincount(self._classes, minlength=classes)[self._classes]
            steps = -self._gap / seen[:, None].astype(self._gap.dtype)
            add_rows(xp, self.blobs[0].diff, self._classes, steps)
        if propagate_down[0]:
            scale = top[0].diff / max(1, self._classes.size)
            bottom[0].diff[...] = (self._gap * scale).reshape(bottom[0].shape)
