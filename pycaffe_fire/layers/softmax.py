"""Softmax over one axis."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Neuron, register_layer
from .description import Storage
from .frozen import After, FrozenOp, NoWeights


@register_layer("Softmax")
class Softmax(Neuron):
    """top = exp(x) / sum of exp(x) along `axis`."""

    storage = Storage.FLOAT32
    family = "score"

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        self._axis = self.axis(bottom[0], self.param.softmax_param.axis)
        self._plan = self.backend.softmax_plan(bottom[0], top[0], self._axis)

    def frozen(
        self, bottom: Blob, top: Blob, after: After, stride: tuple[int, ...] | None = None
    ) -> FrozenOp | None:
        if after != After():
            return None
        plan = self.backend.inference_softmax(bottom, top, self._axis)
        return NoWeights(plan) if plan is not None else None

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._plan.forward()

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            self._plan.backward()
