"""Every update rule: settings to try it with, and its formula once more in plain float64."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from pycaffe_fire import schema
from pycaffe_fire.solver.rules import RULES, Rule

Array = np.ndarray[Any, Any]


class RuleCase(NamedTuple):
    """`move(param, history, gradient, rate, iteration)` updates the list of history arrays, and
    returns what is subtracted from the weights. Decay comes with the gradient, or decoupled on
    top of the move."""

    settings: str
    move: Callable[[Any, list[Array], Array, float, int], Array]
    decoupled: bool = False


def sgd(p: Any, h: list[Array], g: Array, rate: float, t: int) -> Array:
    h[0] = p.momentum * h[0] + rate * g
    return h[0]


def nesterov(p: Any, h: list[Array], g: Array, rate: float, t: int) -> Array:
    old, h[0] = h[0], p.momentum * h[0] + rate * g
    return (1 + p.momentum) * h[0] - p.momentum * old


def adagrad(p: Any, h: list[Array], g: Array, rate: float, t: int) -> Array:
    h[0] = h[0] + g**2
    return rate * g / (np.sqrt(h[0]) + p.delta)


def rmsprop(p: Any, h: list[Array], g: Array, rate: float, t: int) -> Array:
    h[0] = p.rms_decay * h[0] + (1 - p.rms_decay) * g**2
    return rate * g / (np.sqrt(h[0]) + p.delta)


def adadelta(p: Any, h: list[Array], g: Array, rate: float, t: int) -> Array:
    h[0] = p.momentum * h[0] + (1 - p.momentum) * g**2
    v = g * np.sqrt((h[1] + p.delta) / (h[0] + p.delta))
    h[1] = p.momentum * h[1] + (1 - p.momentum) * v**2
    return rate * v


def adam(p: Any, h: list[Array], g: Array, rate: float, t: int) -> Array:
    h[0] = p.momentum * h[0] + (1 - p.momentum) * g
    h[1] = p.momentum2 * h[1] + (1 - p.momentum2) * g**2
    correction = sqrt(1 - p.momentum2 ** (t + 1)) / (1 - p.momentum ** (t + 1))
    return rate * correction * h[0] / (np.sqrt(h[1]) + p.delta)


ADAM = 'type: "Adam" momentum: 0.9 momentum2: 0.99 delta: 1e-6'

CASES = {
    "sgd": RuleCase('type: "SGD" momentum: 0.9', sgd),
    "nesterov": RuleCase('type: "Nesterov" momentum: 0.9', nesterov),
    "adagrad": RuleCase('type: "AdaGrad" delta: 1e-6', adagrad),
    "rmsprop": RuleCase('type: "RMSProp" rms_decay: 0.9 delta: 1e-6', rmsprop),
    "adadelta": RuleCase('type: "AdaDelta" momentum: 0.9 delta: 1e-4', adadelta),
    "adam": RuleCase(ADAM, adam),
    "adamw": RuleCase(f"{ADAM} decoupled_decay: true", adam, decoupled=True),
}


def rule_of(case: str) -> Rule:
    """The rule of a case, with a delta that keeps differences of rounding small."""
    param = schema.parse_text(CASES[case].settings, schema.SolverParameter())
    param.delta = 1e-3
    return RULES[param.type](param)
