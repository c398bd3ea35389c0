"""Learning-rate policies: the rate of an iteration from the solver's settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import cos, exp, pi
from typing import SupportsFloat

from ..errors import SolverError
from ..registry import Registry
from ..schema.proto import SolverParameter
from ..schema.records import NO_LOSS, SolverStateFile

log = logging.getLogger("pycaffe_fire")

Policy = Callable[[SolverParameter, int], float]

FLAT = 700.0  # exp of more overflows; a rate divided by exp of this is zero in float32

RATE_POLICIES: Registry[Policy] = Registry("lr_policy", SolverError)


@RATE_POLICIES.register("fixed")
def fixed(param: SolverParameter, iteration: int) -> float:
    """base_lr"""
    return float(param.base_lr)


@RATE_POLICIES.register("step")
def step(param: SolverParameter, iteration: int) -> float:
    """base_lr * gamma ^ floor(iter / stepsize)"""
    if param.stepsize < 1:
        raise SolverError(f'lr_policy "step" needs a stepsize of at least 1, got {param.stepsize}')
    return float(param.base_lr * param.gamma ** (iteration // param.stepsize))


@RATE_POLICIES.register("exp")
def exponential(param: SolverParameter, iteration: int) -> float:
    """base_lr * gamma ^ iter"""
    return float(param.base_lr * param.gamma**iteration)


@RATE_POLICIES.register("inv")
def inv(param: SolverParameter, iteration: int) -> float:
    """base_lr * (1 + gamma * iter) ^ -power"""
    return float(param.base_lr * (1 + param.gamma * iteration) ** -param.power)


@RATE_POLICIES.register("multistep")
def multistep(param: SolverParameter, iteration: int) -> float:
    """base_lr * gamma ^ (number of stepvalues passed)"""
    return float(param.base_lr * param.gamma ** passed_steps(param, iteration))


def passed_steps(param: SolverParameter, iteration: int) -> int:
    """How many of the stepvalues have been reached; as in Caffe in their order, and no two of them
    in one iteration."""
    steps, reached = 0, -1
    for value in param.stepvalue:
        reached = max(value, reached + 1)
        steps += iteration >= reached
    return steps


def tell_step(param: SolverParameter, iteration: int) -> None:
    """Caffe's line in the log where a stepvalue is reached."""
    if param.lr_policy != "multistep":
        return
    steps = passed_steps(param, iteration)
    if steps != passed_steps(param, iteration - 1):
        log.info("MultiStep Status: Iteration %d, step = %d", iteration, steps)


@RATE_POLICIES.register("multifixed")
def multifixed(param: SolverParameter, iteration: int) -> float:
    """the stagelr of the first stage whose stageiter is not passed, else the last (Intel)"""
    if not param.stagelr or len(param.stagelr) != len(param.stageiter):
        raise SolverError(
            'lr_policy "multifixed" needs a stagelr and a stageiter for each stage, got '
            f"{len(param.stagelr)} and {len(param.stageiter)}"
        )
    stages = zip(param.stagelr, param.stageiter, strict=True)
    return next((float(rate) for rate, end in stages if iteration <= end), param.stagelr[-1])


def base_rate(param: SolverParameter) -> float:
    """The rate that a schedule starts from."""
    staged = param.lr_policy == "multifixed" and param.stagelr
    return float(param.stagelr[0] if staged else param.base_lr)


@RATE_POLICIES.register("poly")
def poly(param: SolverParameter, iteration: int) -> float:
    """min_lr + (base_lr - min_lr) * (1 - iter / max_iter) ^ power"""
    if param.max_iter < 1:
        raise SolverError('lr_policy "poly" needs a max_iter')
    share = max(0.0, 1 - iteration / param.max_iter) ** param.power
    return float(param.min_lr + (param.base_lr - param.min_lr) * share)


@RATE_POLICIES.register("sigmoid")
def sigmoid(param: SolverParameter, iteration: int) -> float:
    """base_lr / (1 + exp(-gamma * (iter - stepsize)))"""
    exponent = -param.gamma * (iteration - param.stepsize)
    return float(param.base_lr / (1 + exp(min(exponent, FLAT))))


@RATE_POLICIES.register("cosine")
def cosine(param: SolverParameter, iteration: int) -> float:
    """min_lr + (base_lr - min_lr) * (1 + cos(pi * iter / max_iter)) / 2"""
    if param.max_iter < 1:
        raise SolverError('lr_policy "cosine" needs a max_iter')
    share = (1 + cos(pi * min(iteration / param.max_iter, 1.0))) / 2
    return float(param.min_lr + (param.base_lr - param.min_lr) * share)


@RATE_POLICIES.register("plateau")
def plateau(param: SolverParameter, iteration: int) -> float:
    """base_lr * gamma ^ (plateaus seen so far); see Plateau, which counts them"""
    if not param.plateau_winsize or min(param.plateau_winsize) < 1:
        raise SolverError('lr_policy "plateau" needs a plateau_winsize of at least 1 for each step')
    return float(param.base_lr)


def learning_rate(param: SolverParameter, iteration: int, plateaus: int = 0) -> float:
    """The rate before a parameter's own lr_mult, never below min_lr.

    Warm-up: for the first rampup_interval (NVIDIA) or warmup_iter (Intel) iterations,
    start + (base_lr - start) * iter / interval, where start is rampup_lr or warmup_start_lr.
    """
    if not param.lr_policy:
        raise SolverError(f"the solver needs an lr_policy; known: {', '.join(RATE_POLICIES)}")
    if not 0 <= param.min_lr <= max(base_rate(param), 0.0):
        raise SolverError(
            f"min_lr must lie between 0 and base_lr ({base_rate(param):g}), got {param.min_lr:g}"
        )
    policy = RATE_POLICIES[param.lr_policy]
    try:
        rate = policy(param, iteration) * float(param.gamma) ** plateaus
    except (ArithmeticError, TypeError):  # too large; a root of a negative number
        raise SolverError(
            f'lr_policy "{param.lr_policy}" has no rate at iteration {iteration}: check base_lr, '
            "gamma, power and stepsize"
        ) from None
    interval, start = warm_up(param)
    if iteration < interval:
        rate = float(start + (param.base_lr - start) * iteration / interval)
    return max(rate, float(param.min_lr))


def warm_up(param: SolverParameter) -> tuple[int, float]:
    """How many iterations it takes, and the rate it starts from."""
    if param.rampup_interval > 0:
        return param.rampup_interval, param.rampup_lr
    return param.warmup_iter, param.warmup_start_lr


class Plateau:
    """Counts plateaus of the loss, for lr_policy "plateau".

    The loss, averaged over average_loss iterations, is on a plateau when it has had no new minimum
    for plateau_winsize iterations since its last one or since the rate last fell. There is one
    window for each step of the rate; after the last the rate stays. Warm-up does not count.
    """

    def __init__(self, param: SolverParameter) -> None:
        self.windows = list(param.plateau_winsize) if param.lr_policy == "plateau" else []
        self.seen = 0
        self.minimum_loss, self.last_event = NO_LOSS, 0
        self._warm_up = warm_up(param)[0]

    def observe(self, iteration: int, loss: SupportsFloat) -> None:
        """Take note of the average loss, which must be the same on every rank."""
        if not self.windows or iteration < self._warm_up:
            return  # nothing looks at the loss, which a device may still be computing
        if float(loss) < self.minimum_loss:
            self.minimum_loss, self.last_event = float(loss), iteration
        waiting = self.seen < len(self.windows)
        if waiting and iteration >= self.last_event + self.windows[self.seen]:
            self.seen, self.last_event = self.seen + 1, iteration
            log.info("Plateau Status: Iteration %d, step = %d", iteration, self.seen)

    def adopt(self, state: SolverStateFile) -> None:
        """Go on from the fields that the forks' states have for it."""
        if self.windows:
            self.restore([state.current_step, state.minimum_loss, state.iter_last_event])

    def state(self) -> list[float]:
        """What a run must remember to go on as if it had not stopped."""
        return [self.seen, self.minimum_loss, self.last_event]

    def restore(self, state: Sequence[float]) -> None:
        seen, self.minimum_loss, event = state
        self.seen, self.last_event = int(seen), int(event)
