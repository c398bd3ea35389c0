"""Softmax over one axis."""

from __future__ import annotations

from collections.abc import Sequence

from ..blob import Blob
from .base import Neuron, register_layer


@register_layer("Softmax")
class Softmax(Neuron):
    """top = exp(x) / sum of exp(x) along `axis`."""

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self._axis = self.axis(bottom[0], self.param.softmax_param.axis)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].data[...] = self.backend.softmax(bottom[0].data, self._axis)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            y, dy = top[0].data, top[0].diff
            dot = (y * dy).sum(axis=self._axis, keepdims=True)
            bottom[0].diff[...] = (dy - dot) * y
