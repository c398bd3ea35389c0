"""Dropout: zero a random share of the inputs while training."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import Neuron, is_train, register_layer


@register_layer("Dropout")
class Dropout(Neuron):
    """top = x / (1 - ratio) with probability 1 - ratio, else 0; in TEST phase top = x."""

    @classmethod
    def describe(cls, param: LayerParameter) -> str:
        return f"{param.dropout_param.dropout_ratio:g}"

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        ratio = self.param.dropout_param.dropout_ratio
        if not 0 <= ratio < 1:
            self.fail(f"dropout_ratio must be at least 0 and below 1, got {ratio:g}")
        self._drops = is_train(self.phase) and ratio > 0

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if self._drops:
            ratio = self.param.dropout_param.dropout_ratio
            self._plan = self.backend.dropout(bottom[0], top[0], ratio, 1 / (1 - ratio))
        else:
            top[0].value, top[0].gradient = bottom[0].value, bottom[0].gradient

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._drops:
            self._plan.forward(self.draw(bottom[0].num))

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0] and self._drops:
            self._plan.backward()
