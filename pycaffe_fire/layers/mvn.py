"""MVN: every sample, or each of its channels, brought to mean 0 and variance 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.blob import Blob
from .base import Neuron, register_layer
from .moments import moments, through_moments

ROW = (1,)


@register_layer("MVN")
class MVN(Neuron):
    """top = (x - mean) / (sqrt(variance) + eps), or x - mean without normalize_variance.

    As in Caffe, the top has at least four axes, unless it runs in place.
    """

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if top[0] is not bottom[0]:
            shape = bottom[0].shape
            top[0].reshape(*shape, *(1 for _ in range(4 - len(shape))))

    def _rows(self, array: Any, blob: Blob) -> Any:
        """One row per mean."""
        across = self.param.mvn_param.across_channels
        rows = blob.num if across else blob.num * blob.channels
        return array.reshape(rows, blob.count // max(rows, 1))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.mvn_param
        x = self._rows(bottom[0].data, bottom[0])
        mean, variance = moments(x, ROW)
        y = x - mean
        if param.normalize_variance:
            self._deviation = self.xp.sqrt(variance) + param.eps
            y /= self._deviation
        self._normed = y
        top[0].data[...] = y.reshape(top[0].shape)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if not propagate_down[0]:
            return
        dy = self._rows(top[0].diff, top[0])
        if self.param.mvn_param.normalize_variance:
            dx = through_moments(dy, self._normed, self._deviation, ROW)
        else:
            dx = dy - dy.mean(axis=1, keepdims=True)
        bottom[0].diff[...] = dx.reshape(bottom[0].shape)
