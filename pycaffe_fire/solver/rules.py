"""The solvers of Caffe: which update rule, how much history, and which settings it takes."""

from __future__ import annotations

from math import sqrt
from typing import Any, ClassVar

from ..errors import SolverError
from ..registry import Registry


class Rule:
    """An update rule: `kernel` names the arithmetic in the backend, `slots` its history buffers."""

    kernel: str
    slots: ClassVar[int] = 1
    has_momentum: ClassVar[bool] = False  # is the first slot a running mean of gradients?

    def __init__(self, param: Any) -> None:
        self.param = param
        if param.decoupled_decay and not isinstance(self, Adam):
            raise SolverError(
                f'decoupled_decay is an option of solver type "Adam"; "{param.type}" has none'
            )
        self.check()

    def check(self) -> None:
        """Refuse settings that the rule cannot honour."""

    def numbers(self, iteration: int) -> tuple[float, ...]:
        """The rule's own numbers, in the order its kernel takes them."""
        raise NotImplementedError

    def refuse_momentum(self) -> None:
        if self.param.momentum:
            raise SolverError(
                f'solver type "{self.param.type}" has no momentum; remove momentum: '
                f"{self.param.momentum:g}"
            )


RULES: Registry[type[Rule]] = Registry("solver type", SolverError)


@RULES.register("SGD")
class SGD(Rule):
    """h = momentum h + rate g; w -= h"""

    kernel = "sgd"
    has_momentum = True

    def numbers(self, iteration: int) -> tuple[float, ...]:
        return (self.param.momentum,)


@RULES.register("Nesterov")
class Nesterov(SGD):
    """Momentum with a look ahead."""

    kernel = "nesterov"


@RULES.register("AdaGrad")
class AdaGrad(Rule):
    """Rates shrink with the squares seen so far."""

    kernel = "adagrad"

    def check(self) -> None:
        self.refuse_momentum()

    def numbers(self, iteration: int) -> tuple[float, ...]:
        return (self.param.delta,)


@RULES.register("RMSProp")
class RMSProp(Rule):
    """Rates follow a running mean of squares."""

    kernel = "rmsprop"

    def check(self) -> None:
        self.refuse_momentum()
        if not 0 <= self.param.rms_decay < 1:
            raise SolverError(f"rms_decay must lie in [0, 1), got {self.param.rms_decay:g}")

    def numbers(self, iteration: int) -> tuple[float, ...]:
        return (self.param.delta, self.param.rms_decay)


@RULES.register("AdaDelta")
class AdaDelta(Rule):
    """Steps scaled by running means of squared steps and gradients."""

    kernel, slots = "adadelta", 2

    def numbers(self, iteration: int) -> tuple[float, ...]:
        return (self.param.delta, self.param.momentum)


@RULES.register("Adam")
class Adam(Rule):
    """Bias-corrected running means of gradients and their squares.

    Weight decay is part of the gradient, as in Caffe, or with decoupled_decay a step of its own
    (AdamW): w -= rate (correction m / (sqrt(v) + delta) + weight_decay w)
    """

    slots = 2
    has_momentum = True

    def check(self) -> None:
        self.kernel = "adamw" if self.param.decoupled_decay else "adam"

    def numbers(self, iteration: int) -> tuple[float, ...]:
        beta1, beta2 = self.param.momentum, self.param.momentum2
        t = iteration + 1
        correction = sqrt(1 - beta2**t) / (1 - beta1**t)
        return (beta1, beta2, correction, self.param.delta)
