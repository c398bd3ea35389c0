"""Learning-rate policies: the rate of an iteration from the solver's settings."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, exp, pi
from typing import Any

from ..errors import SolverError
from ..registry import Registry

Policy = Callable[[Any, int], float]

FLAT = 700.0  # exp of more overflows; a rate divided by exp of this is zero in float32

POLICIES: Registry[Policy] = Registry("lr_policy", SolverError)


@POLICIES.register("fixed")
def fixed(param: Any, iteration: int) -> float:
    """base_lr"""
    return float(param.base_lr)


@POLICIES.register("step")
def step(param: Any, iteration: int) -> float:
    """base_lr * gamma ^ floor(iter / stepsize)"""
    if param.stepsize < 1:
        raise SolverError(f'lr_policy "step" needs a stepsize of at least 1, got {param.stepsize}')
    return float(param.base_lr * param.gamma ** (iteration // param.stepsize))


@POLICIES.register("exp")
def exponential(param: Any, iteration: int) -> float:
    """base_lr * gamma ^ iter"""
    return float(param.base_lr * param.gamma**iteration)


@POLICIES.register("inv")
def inv(param: Any, iteration: int) -> float:
    """base_lr * (1 + gamma * iter) ^ -power"""
    return float(param.base_lr * (1 + param.gamma * iteration) ** -param.power)


@POLICIES.register("multistep")
def multistep(param: Any, iteration: int) -> float:
    """base_lr * gamma ^ (number of stepvalues passed)"""
    return float(param.base_lr * param.gamma ** passed_steps(param, iteration))


def passed_steps(param: Any, iteration: int) -> int:
    """How many of the (ascending) stepvalues have been reached."""
    return sum(iteration >= value for value in param.stepvalue)


@POLICIES.register("poly")
def poly(param: Any, iteration: int) -> float:
    """base_lr * (1 - iter / max_iter) ^ power"""
    if param.max_iter < 1:
        raise SolverError('lr_policy "poly" needs a max_iter')
    return float(param.base_lr * max(0.0, 1 - iteration / param.max_iter) ** param.power)


@POLICIES.register("sigmoid")
def sigmoid(param: Any, iteration: int) -> float:
    """base_lr / (1 + exp(-gamma * (iter - stepsize)))"""
    exponent = -param.gamma * (iteration - param.stepsize)
    return float(param.base_lr / (1 + exp(min(exponent, FLAT))))


@POLICIES.register("cosine")
def cosine(param: Any, iteration: int) -> float:
    """min_lr + (base_lr - min_lr) * (1 + cos(pi * iter / max_iter)) / 2"""
    if param.max_iter < 1:
        raise SolverError('lr_policy "cosine" needs a max_iter')
    share = (1 + cos(pi * min(iteration / param.max_iter, 1.0))) / 2
    return float(param.min_lr + (param.base_lr - param.min_lr) * share)


def learning_rate(param: Any, iteration: int) -> float:
    """The rate before a parameter's own lr_mult: a linear warm-up first, never below min_lr."""
    if not param.lr_policy:
        raise SolverError(f"the solver needs an lr_policy; known: {', '.join(POLICIES)}")
    for interval, start in (
        (param.rampup_interval, param.rampup_lr),  # NVIDIA's name
        (param.warmup_iter, param.warmup_start_lr),  # Intel's
    ):
        if iteration < interval:
            return float(start + (param.base_lr - start) * iteration / interval)
    return max(POLICIES[param.lr_policy](param, iteration), float(param.min_lr))
