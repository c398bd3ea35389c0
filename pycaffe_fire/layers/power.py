"""Power, Exp and Log of a shifted and scaled bottom."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

from ..backend.blob import Blob
from .base import register_layer
from .elementwise import Elementwise

E = -1  # how the schema writes the base of the natural logarithm


@register_layer("Power")
class Power(Elementwise):
    """top = (shift + scale * x) ^ power."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self.needs_input = self.param.power_param.power not in (0, 1)

    def _base(self, x: Any) -> Any:
        return self.param.power_param.shift + self.param.power_param.scale * x

    def value(self, x: Any) -> Any:
        power = self.param.power_param.power
        return self._base(x) if power == 1 else self._base(x) ** power

    def slope(self, x: Any, y: Any) -> Any:
        param = self.param.power_param
        factor = param.power * param.scale
        if factor == 0 or param.power == 1:
            return factor
        return factor * self._base(x) ** (param.power - 1)


@register_layer("Exp")
class Exp(Elementwise):
    """top = base ^ (shift + scale * x); base -1 means e."""

    needs_input = False

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        base = self.param.exp_param.base
        if base != E and base <= 0:
            self.fail(f"base must be greater than 0, or -1 for e, got {base:g}")
        self._log_base = 1.0 if base == E else log(base)

    def value(self, x: Any) -> Any:
        param = self.param.exp_param
        return self.xp.exp(self._log_base * (param.shift + param.scale * x))

    def slope(self, x: Any, y: Any) -> Any:
        return self._log_base * self.param.exp_param.scale * y


@register_layer("Log")
class Log(Elementwise):
    """top = log of (shift + scale * x) to `base`; base -1 means e."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        base = self.param.log_param.base
        if base != E and (base <= 0 or base == 1):
            self.fail(f"base must be greater than 0 and not 1, or -1 for e, got {base:g}")
        self._log_base = 1.0 if base == E else log(base)

    def _inner(self, x: Any) -> Any:
        return self.param.log_param.shift + self.param.log_param.scale * x

    def value(self, x: Any) -> Any:
        return self.xp.log(self._inner(x)) / self._log_base

    def slope(self, x: Any, y: Any) -> Any:
        return self.param.log_param.scale / (self._log_base * self._inner(x))
