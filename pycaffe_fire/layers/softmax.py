"""Softmax over one axis."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Neuron, register_layer
from .description import Storage


@register_layer("Softmax")
class Softmax(Neuron):
    """top = exp(x) / sum of exp(x) along `axis`."""

    storage = Storage.FLOAT32
    family = "score"

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        axis = self.axis(bottom[0], self.param.softmax_param.axis)
        self._plan = self.backend.softmax_plan(bottom[0], top[0], axis)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._plan.forward()

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            self._plan.backward()
