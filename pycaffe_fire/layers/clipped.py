"""Functions with corners: AbsVal, Clip, ReLU6, ELU and Threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.blob import Blob
from .base import register_layer
from .description import Storage
from .elementwise import Elementwise


@register_layer("AbsVal")
class AbsVal(Elementwise):
    """top = |x|."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if top[0] is bottom[0]:
            self.fail("cannot run in place: its gradient needs the sign of its bottom")

    def value(self, x: Any) -> Any:
        return self.xp.abs(x)

    def slope(self, x: Any, y: Any) -> Any:
        return self.xp.sign(x)


@register_layer("Clip")
class Clip(Elementwise):
    """top = min(max(x, min), max)."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.clip_param
        if not param.min <= param.max:
            self.fail(f"min must not exceed max, got {param.min:g} and {param.max:g}")

    def value(self, x: Any) -> Any:
        return self.xp.clip(x, self.param.clip_param.min, self.param.clip_param.max)

    def slope(self, x: Any, y: Any) -> Any:
        return (x >= self.param.clip_param.min) & (x <= self.param.clip_param.max)


@register_layer("ReLU6")
class ReLU6(Elementwise):
    """top = min(max(x, 0), 6)."""

    needs_input = False

    def value(self, x: Any) -> Any:
        return self.xp.clip(x, 0, 6)

    def slope(self, x: Any, y: Any) -> Any:
        return (y > 0) & (y < 6)


@register_layer("ELU")
class ELU(Elementwise):
    """top = lambda * x for x > 0, lambda * alpha * (exp(x) - 1) otherwise."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._alpha = self.param.elu_param.alpha
        self._lambda = getattr(self.param.elu_param, "lambda")
        self.needs_input = self._alpha < 0 or self._lambda <= 0  # else y has the sign of x

    def value(self, x: Any) -> Any:
        xp = self.xp
        return self._lambda * xp.where(x > 0, x, self._alpha * xp.expm1(xp.minimum(x, 0)))

    def slope(self, x: Any, y: Any) -> Any:
        positive = x > 0 if self.needs_input else y > 0
        return self.xp.where(positive, self._lambda, y + self._lambda * self._alpha)


@register_layer("Threshold")
class Threshold(Elementwise):
    """top = 1 where x > threshold, else 0. It has no gradient."""

    storage = Storage.FLOAT32
    needs_input = False

    def value(self, x: Any) -> Any:
        return x > self.param.threshold_param.threshold

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            self.fail("a step has no gradient; stop it here with propagate_down: false")

    def allow_force_backward(self, bottom_index: int) -> bool:
        return False
