"""Momentum and weight decay that change while training, as NVIDIA's fork has them."""

from __future__ import annotations

from math import sqrt

from ..errors import SolverError
from ..schema.proto import SolverParameter
from .rates import learning_rate

MOMENTUM_POLICIES = ("fixed", "poly", "opt")
DECAY_POLICIES = ("fixed", "poly")


def momentum(param: SolverParameter, iteration: int) -> float:
    """fixed: momentum
    poly: momentum + (max_momentum - momentum) * (iter / max_iter) ^ momentum_power
    opt: (1 - sqrt(rate) / 2)^2, at most max_momentum where that is given
    """
    first, most = float(param.momentum), float(param.max_momentum)
    if param.momentum_policy == "poly":
        share: float = _share(param, iteration) ** float(param.momentum_power)
        return first + (most - first) * share
    if param.momentum_policy == "opt":
        best = (1 - 0.5 * sqrt(learning_rate(param, iteration))) ** 2
        return min(best, most) if param.HasField("max_momentum") else best
    return first


def weight_decay(param: SolverParameter, iteration: int) -> float:
    """fixed: weight_decay
    poly: weight_decay * (iter / max_iter) ^ weight_decay_power; with max_weight_decay
        weight_decay + (max_weight_decay - weight_decay) * (iter / max_iter) ^ weight_decay_power
    """
    decay = float(param.weight_decay)
    if param.weight_decay_policy == "poly":
        share: float = _share(param, iteration) ** float(param.weight_decay_power)
        if param.HasField("max_weight_decay"):
            return decay + (float(param.max_weight_decay) - decay) * share
        decay *= share
    return decay


def _share(param: SolverParameter, iteration: int) -> float:
    return min(iteration / max(param.max_iter, 1), 1.0)


def check_schedules(param: SolverParameter, has_momentum: bool) -> None:
    """Refuse policies that nobody knows, and those of a solver type without momentum."""
    for field, known in (
        ("momentum_policy", MOMENTUM_POLICIES),
        ("weight_decay_policy", DECAY_POLICIES),
    ):
        value = getattr(param, field)
        if value not in known:
            raise SolverError(f'unknown {field} "{value}"; known: {", ".join(known)}')
        if value == "poly" and param.max_iter < 1:
            raise SolverError(f'{field} "poly" needs a max_iter')
    if param.HasField("max_weight_decay") and param.weight_decay_policy != "poly":
        raise SolverError('max_weight_decay is for weight_decay_policy "poly": remove it')
    if param.momentum_policy != "fixed" and not has_momentum:
        raise SolverError(
            f'momentum_policy is for solver types SGD and Nesterov; "{param.type}" has another '
            "momentum: remove it"
        )
