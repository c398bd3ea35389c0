"""LARS and LARC: a rate of its own for every parameter, from the norms of weights and gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backend.base import Backend
from ..backend.plans import Segment
from ..backend.tensor import Array
from ..errors import SolverError
from ..schema.proto import SolverParameter
from .rules import Rule

CLIP, SCALE = "clip", "scale"
TURBO_MEMORY = 0.95  # how much of the correlation stays from one iteration to the next
TURBO_FORCE = 0.9


class LocalRates:
    """The rates of all parameters in one iteration.

    LARC (NVIDIA's larc):           local = larc_eta |w| / |g|
      larc_policy "scale":          rate of the parameter = rate * local
      larc_policy "clip":           rate of the parameter = min(rate, local)
      larc_turbo, from iteration 2: local *= 1 - 0.9 c, where c = 0.95 c + 0.05 cos(g, momentum)
    LARS (Intel's local_lr_auto):   local = local_gw_ratio |w| / (|g| + weight_decay |w|), scaled

    g is the gradient after clipping and division by iter_size, before weight decay. A parameter
    without weights or gradients has local = 1. As in both forks, local takes the place of
    lr_mult, of which only counts whether it is above 0.
    """

    def __init__(
        self, param: SolverParameter, rule: Rule, backend: Backend, segments: Sequence[Segment]
    ) -> None:
        self._clip = bool(param.larc) and param.larc_policy == CLIP
        self._turbo = bool(param.larc and param.larc_turbo)
        self._eta = param.larc_eta if param.larc else param.local_gw_ratio
        self._decay = 0.0 if param.larc else param.weight_decay
        _check(param, rule, self._eta)
        self._xp = backend.xp
        self._dots = backend.dots(segments)
        self._mults = self._xp.asarray(np.array([s.lr_mult for s in segments], np.float64))
        self._correlation = self._xp.zeros(len(segments), np.float64)

    def __call__(
        self, weights: Array, gradients: Array, history: Sequence[Array], rate: float,
        scale: float, iteration: int,
    ) -> Array:  # fmt: skip
        """One rate for each segment; gradients count as gradients * scale."""
        xp = self._xp
        w = xp.sqrt(self._dots(weights, weights))
        g = xp.sqrt(self._dots(gradients, gradients)) * scale
        known = (w > 0) & (g > 0)
        local = xp.where(known, self._eta * w / xp.where(known, g + self._decay * w, 1), 1.0)
        if self._turbo and iteration > 1:
            local *= self._boost(gradients, history[0], g, scale)
        local = xp.where(self._mults > 0, local, self._mults)
        return xp.minimum(rate, local) if self._clip else rate * local

    def _boost(self, gradients: Array, momentum: Array, g: Array, scale: float) -> Array:
        xp = self._xp
        lengths = g * xp.sqrt(self._dots(momentum, momentum))
        known = lengths > 0
        dots = self._dots(gradients, momentum) * scale
        cosines = xp.where(known, dots / xp.where(known, lengths, 1), 0.0)
        self._correlation = TURBO_MEMORY * self._correlation + (1 - TURBO_MEMORY) * cosines
        return 1 - TURBO_FORCE * self._correlation

    def state(self) -> list[float]:
        """What a run must remember to go on as if it had not stopped."""
        correlation: list[float] = self._correlation.tolist()
        return correlation

    def restore(self, state: Sequence[float]) -> None:
        if len(state) == len(self._correlation):
            self._correlation = self._xp.asarray(np.array(state, np.float64))


def local_rates(
    param: SolverParameter, rule: Rule, backend: Backend, segments: Sequence[Segment]
) -> LocalRates | None:
    """What the solver's settings ask for; None where all parameters follow one rate."""
    if not (param.larc or param.local_lr_auto):
        return None
    return LocalRates(param, rule, backend, segments)


def _check(param: SolverParameter, rule: Rule, eta: float) -> None:
    if param.larc and param.local_lr_auto:
        raise SolverError("larc and local_lr_auto both choose local rates; keep one of them")
    if param.larc and param.larc_policy not in (CLIP, SCALE):
        raise SolverError(f'larc_policy must be "scale" or "clip", got "{param.larc_policy}"')
    if not eta > 0:
        name = "larc_eta" if param.larc else "local_gw_ratio"
        raise SolverError(f"{name} must be above 0, got {eta:g}")
    if param.larc and param.larc_turbo and not rule.has_momentum:
        raise SolverError(
            f'larc_turbo looks at the momentum, which solver type "{param.type}" does not keep'
        )
