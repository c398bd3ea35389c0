"""Adam, and with decoupled_decay AdamW."""

from __future__ import annotations

from math import sqrt
from typing import Any

from ...backend.tensor import Array
from ...errors import SolverError
from .base import RULES, Formula, Rule


def adam(
    xp: Any, w: Array, g: Array, m: Array, v: Array, rate: float, beta1: float, beta2: float,
    correction: float, delta: float,
) -> None:  # fmt: skip
    """m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w -= rate correction m / (sqrt(v) + delta)"""
    m[...] = beta1 * m + (1 - beta1) * g
    v[...] = beta2 * v + (1 - beta2) * g * g
    w -= rate * correction * m / (xp.sqrt(v) + delta)


def adamw(
    xp: Any, w: Array, g: Array, m: Array, v: Array, rate: float, beta1: float, beta2: float,
    correction: float, delta: float, pull: Array,
) -> None:  # fmt: skip
    """Adam without decay in m and v; w -= rate (correction m / (sqrt(v) + delta) + decay w)"""
    adam(xp, w, g, m, v, rate, beta1, beta2, correction, delta)
    w -= rate * pull


@RULES.register("Adam")
class Adam(Rule):
    """Bias-corrected running means of gradients and their squares.

    Weight decay is part of the gradient, as in Caffe, or with decoupled_decay a step of its own.
    """

    slots = 2
    has_momentum = True
    can_decouple = True

    def check(self) -> None:
        for name in ("momentum", "momentum2"):
            share = getattr(self.param, name)
            if not 0 <= share < 1:  # else a mean that grows, and a root of less than nothing
                raise SolverError(f'{name} of solver type "Adam" lies in [0, 1), got {share:g}')
        decoupled = Formula(adamw, kernel="adamw", decoupled=True)
        self.formula = decoupled if self.param.decoupled_decay else Formula(adam, kernel="adam")

    def numbers(self, iteration: int) -> tuple[float, ...]:
        beta1, beta2 = self.param.momentum, self.param.momentum2
        t = iteration + 1
        correction = sqrt(1 - beta2**t) / (1 - beta1**t)
        return (beta1, beta2, correction, self.param.delta)
