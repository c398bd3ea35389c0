"""Mish: a smooth ReLU that lets small negative values through (YOLOv4)."""

from __future__ import annotations

from typing import Any

from .base import register_layer
from .elementwise import Elementwise
from .sigmoid import sigmoid


@register_layer("Mish")
class Mish(Elementwise):
    """top = x tanh(log(1 + exp(x)))."""

    def _gate(self, x: Any) -> Any:
        xp = self.xp
        return xp.tanh(xp.maximum(x, 0) + xp.log1p(xp.exp(-xp.abs(x))))

    def value(self, x: Any) -> Any:
        return x * self._gate(x)

    def slope(self, x: Any, y: Any) -> Any:
        gate = self._gate(x)
        return gate + x * (1 - gate * gate) * sigmoid(self.xp, x)
