"""HSigmoid and HSwish: Sigmoid and Swish made of straight lines (MobileNetV3)."""

from __future__ import annotations

from typing import Any

from .base import register_layer
from .elementwise import Elementwise


@register_layer("HSigmoid")
class HSigmoid(Elementwise):
    """top = min(max(x + 3, 0), 6) / 6."""

    needs_input = False

    def value(self, x: Any) -> Any:
        return self.xp.clip(x / 6 + 0.5, 0, 1)

    def slope(self, x: Any, y: Any) -> Any:
        return ((y > 0) & (y < 1)) / 6


@register_layer("HSwish")
class HSwish(Elementwise):
    """top = x min(max(x + 3, 0), 6) / 6."""

    def value(self, x: Any) -> Any:
        return x * self.xp.clip(x / 6 + 0.5, 0, 1)

    def slope(self, x: Any, y: Any) -> Any:
        xp = self.xp
        return xp.where(x <= -3, 0, xp.where(x >= 3, 1, x / 3 + 0.5))
