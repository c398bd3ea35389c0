"""Update rules on plain arrays, one parameter at a time; see kernels/update.py for the formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import Segment, SegmentDots, UpdateStep
from ..tensor import Array


def sgd(xp: Any, w: Array, g: Array, h: Array, rate: float, momentum: float) -> None:
    h[...] = momentum * h + rate * g
    w -= h


def nesterov(xp: Any, w: Array, g: Array, h: Array, rate: float, momentum: float) -> None:
    old = h.copy()
    h[...] = momentum * old + rate * g
    w -= (1 + momentum) * h - momentum * old


def adagrad(xp: Any, w: Array, g: Array, h: Array, rate: float, delta: float) -> None:
    h += g * g
    w -= rate * g / (xp.sqrt(h) + delta)


def rmsprop(
    xp: Any, w: Array, g: Array, h: Array, rate: float, delta: float, rms_decay: float
) -> None:
    h[...] = rms_decay * h + (1 - rms_decay) * g * g
    w -= rate * g / (xp.sqrt(h) + delta)


def adadelta(
    xp: Any, w: Array, g: Array, h: Array, u: Array, rate: float, delta: float, momentum: float
) -> None:
    h[...] = momentum * h + (1 - momentum) * g * g
    v = g * xp.sqrt((u + delta) / (h + delta))
    u[...] = momentum * u + (1 - momentum) * v * v
    w -= rate * v


def adam(
    xp: Any, w: Array, g: Array, m: Array, v: Array, rate: float, beta1: float, beta2: float,
    correction: float, delta: float,
) -> None:  # fmt: skip
    m[...] = beta1 * m + (1 - beta1) * g
    v[...] = beta2 * v + (1 - beta2) * g * g
    w -= rate * correction * m / (xp.sqrt(v) + delta)


def adamw(
    xp: Any, w: Array, g: Array, m: Array, v: Array, rate: float, beta1: float, beta2: float,
    correction: float, delta: float, pull: Array,
) -> None:  # fmt: skip
    adam(xp, w, g, m, v, rate, beta1, beta2, correction, delta)
    w -= rate * pull


class Update(UpdateStep):
    """Applies a rule to each segment in turn."""

    def __init__(self, xp: Any, rule: str, segments: Sequence[Segment]) -> None:
        self._xp, self._rule, self._segments = xp, RULES[rule], list(segments)
        self._decoupled = self._rule is adamw

    def __call__(
        self, weights: Array, gradients: Array, history: Sequence[Array], rate: float,
        decay: float, l1: bool, scale: float, numbers: Sequence[float], rates: Array | None = None,
    ) -> None:  # fmt: skip
        for i, s in enumerate(self._segments):
            place = slice(s.start, s.stop)
            w = weights[place]
            pull = w.dtype.type(decay * s.decay_mult) * (self._xp.sign(w) if l1 else w)
            g = gradients[place] * w.dtype.type(scale)
            slots = [h[place] for h in history]
            own = rate * s.lr_mult if rates is None else float(rates[i])
            if self._decoupled:
                self._rule(self._xp, w, g, *slots, own, *numbers, pull)
            else:
                self._rule(self._xp, w, g + pull, *slots, own, *numbers)


class Dots(SegmentDots):
    """One segment after the other."""

    def __init__(self, xp: Any, segments: Sequence[Segment]) -> None:
        self._xp, self._segments = xp, list(segments)

    def __call__(self, a: Array, b: Array) -> Array:
        places = [slice(s.start, s.stop) for s in self._segments]
        return self._xp.stack([(a[p].astype(np.float64) * b[p]).sum() for p in places])


RULES: dict[str, Any] = {
    f.__name__: f for f in (sgd, nesterov, adagrad, rmsprop, adadelta, adam, adamw)
}
