"""Dropout: zero a random share of the inputs while training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..backend.blob import Blob
from ..backend.plans import Draw
from ..backend.random import key
from ..schema.proto import LayerParameter
from .base import Neuron, is_train, register_layer


@register_layer("Dropout")
class Dropout(Neuron):
    """top = x / (1 - ratio) with probability 1 - ratio, else 0; in TEST phase top = x.

    With scale_train: false, top = x or 0 while training, and (1 - ratio) x in TEST phase. With
    sample_weights_test, TEST phase drops as training does.
    """

    @classmethod
    def describe(cls, param: LayerParameter) -> str:
        return f"{param.dropout_param.dropout_ratio:g}"

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.dropout_param
        ratio = param.dropout_ratio
        if not 0 <= ratio < 1:
            self.fail(f"dropout_ratio must be at least 0 and below 1, got {ratio:g}")
        self._drops = (is_train(self.phase) or param.sample_weights_test) and ratio > 0
        self._scale = 1 / (1 - ratio) if param.scale_train else 1.0
        self._weakens = not (self._drops or param.scale_train) and ratio > 0

    @property
    def repeatable(self) -> bool:
        return not self._drops

    @property
    def idle(self) -> bool:
        return not (self._drops or self._weakens)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if self._drops:
            ratio = self.param.dropout_param.dropout_ratio
            self._plan = self.backend.dropout(bottom[0], top[0], ratio, self._scale)
        elif not self._weakens:
            top[0].value, top[0].gradient = bottom[0].value, bottom[0].gradient

    def draw(self, num: int) -> Draw:
        drawn, seed = super().draw(num), self.param.dropout_param.random_seed
        return drawn if seed < 0 else replace(drawn, key=key(seed, f"layer {self.name}"))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._drops:
            self._plan.forward(self.draw(bottom[0].num))
        elif self._weakens:
            kept = 1 - self.param.dropout_param.dropout_ratio
            top[0].data[...] = kept * bottom[0].data

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if not propagate_down[0]:
            return
        if self._drops:
            self._plan.backward()
        elif self._weakens:
            kept = 1 - self.param.dropout_param.dropout_ratio
            bottom[0].diff[...] = kept * top[0].diff
