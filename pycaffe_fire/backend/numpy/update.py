"""Update rules as array code, one parameter at a time, for rules that no kernel computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..plans import Formula, Segment, SegmentDots, UpdateStep
from ..tensor import Array


class Update(UpdateStep):
    """Applies a formula to each segment in turn."""

    def __init__(self, xp: Any, formula: Formula, segments: Sequence[Segment]) -> None:
        self._xp, self._formula, self._segments = xp, formula, list(segments)

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
            own = rate * s.lr_mult if rates is None else self._own_rate(rates, i)
            if self._formula.decoupled:
                self._formula.apply(self._xp, w, g, *slots, own, *numbers, pull)
            else:
                self._formula.apply(self._xp, w, g + pull, *slots, own, *numbers)

    def _own_rate(self, rates: Array, segment: int) -> Any:
        return float(rates[segment])


class Dots(SegmentDots):
    """One segment after the other."""

    def __init__(self, xp: Any, segments: Sequence[Segment]) -> None:
        self._xp, self._segments = xp, list(segments)

    def __call__(self, a: Array, b: Array) -> Array:
        places = [slice(s.start, s.stop) for s in self._segments]
        return self._xp.stack([(a[p].astype(np.float64) * b[p]).sum() for p in places])
