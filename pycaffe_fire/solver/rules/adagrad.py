"""AdaGrad."""

from __future__ import annotations

from typing import Any

from ...backend.tensor import Array
from .base import RULES, Formula, Rule


def adagrad(xp: Any, w: Array, g: Array, h: Array, rate: float, delta: float) -> None:
    """h += g^2; w -= rate g / (sqrt(h) + delta)"""
    h += g * g
    w -= rate * g / (xp.sqrt(h) + delta)


@RULES.register("AdaGrad")
class AdaGrad(Rule):
    """Rates shrink with the squares seen so far."""

    formula = Formula(adagrad, kernel="adagrad")

    def check(self) -> None:
        self.refuse_momentum()

    def numbers(self, iteration: int) -> tuple[float, ...]:
        return (self.param.delta,)
