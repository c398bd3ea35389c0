"""AdaDelta."""

from __future__ import annotations

from typing import Any

from ...backend.tensor import Array
from .base import RULES, Formula, Rule


def adadelta(
    xp: Any, w: Array, g: Array, h: Array, u: Array, rate: float, delta: float, momentum: float
) -> None:
    """h = m h + (1-m) g^2; v = g sqrt((u + delta)/(h + delta)); u = m u + (1-m) v^2; w -= rate v"""
    h[...] = momentum * h + (1 - momentum) * g * g
    v = g * xp.sqrt((u + delta) / (h + delta))
    u[...] = momentum * u + (1 - momentum) * v * v
    w -= rate * v


@RULES.register("AdaDelta")
class AdaDelta(Rule):
    """Steps scaled by running means of squared steps and gradients."""

    formula = Formula(adadelta, kernel="adadelta")
    slots = 2

    def numbers(self, iteration: int) -> tuple[float, ...]:
        return (self.param.delta, self.param.momentum)
