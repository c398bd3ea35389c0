"""RMSProp."""

from __future__ import annotations

from typing import Any

from ...backend.tensor import Array
from ...errors import SolverError
from .base import RULES, Formula, Rule


def rmsprop(
    xp: Any, w: Array, g: Array, h: Array, rate: float, delta: float, rms_decay: float
) -> None:
    """h = d h + (1 - d) g^2; w -= rate g / (sqrt(h) + delta)"""
    h[...] = rms_decay * h + (1 - rms_decay) * g * g
    w -= rate * g / (xp.sqrt(h) + delta)


@RULES.register("RMSProp")
class RMSProp(Rule):
    """Rates follow a running mean of squares."""

    formula = Formula(rmsprop, kernel="rmsprop")

    def check(self) -> None:
        self.refuse_momentum()
        if not 0 <= self.param.rms_decay < 1:
            raise SolverError(f"rms_decay must lie in [0, 1), got {self.param.rms_decay:g}")

    def numbers(self, iteration: int) -> tuple[float, ...]:
        return (self.param.delta, self.param.rms_decay)
