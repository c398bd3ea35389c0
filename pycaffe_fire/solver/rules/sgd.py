"""Stochastic gradient descent with momentum."""

from __future__ import annotations

from typing import Any

from ...backend.tensor import Array
from ..schedules import momentum
from .base import RULES, Formula, Rule


def sgd(xp: Any, w: Array, g: Array, h: Array, rate: float, momentum: float) -> None:
    """h = momentum h + rate g; w -= h"""
    h[...] = momentum * h + rate * g
    w -= h


@RULES.register("SGD")
class SGD(Rule):
    """Steps along a running mean of gradients."""

    formula = Formula(sgd, kernel="sgd")
    has_momentum = has_momentum_policy = True

    def numbers(self, iteration: int) -> tuple[float, ...]:
        return (momentum(self.param, iteration),)
