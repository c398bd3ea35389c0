"""Nesterov's accelerated gradient."""

from __future__ import annotations

from typing import Any

from ...backend.tensor import Array
from ..schedules import momentum
from .base import RULES, Formula, Rule


def nesterov(xp: Any, w: Array, g: Array, h: Array, rate: float, momentum: float) -> None:
    """v = momentum h + rate g; w -= (1 + momentum) v - momentum h; h = v"""
    old = h.copy()
    h[...] = momentum * old + rate * g
    w -= (1 + momentum) * h - momentum * old


@RULES.register("Nesterov")
class Nesterov(Rule):
    """Momentum with a look ahead."""

    formula = Formula(nesterov, kernel="nesterov")
    has_momentum = has_momentum_policy = True

    def numbers(self, iteration: int) -> tuple[float, ...]:
        return (momentum(self.param, iteration),)
