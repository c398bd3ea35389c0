"""Update rules as compiled kernels over whole flat buffers: one call per iteration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base import Segment, UpdateStep
from ..compiled import use_threads
from ..kernels import update
from ..tensor import Array

RULES = {
    name: getattr(update, name)
    for name in ("sgd", "nesterov", "adagrad", "rmsprop", "adadelta", "adam")
}


class Update(UpdateStep):
    """Blocks of at most update.BLOCK elements, each inside one parameter."""

    def __init__(self, threads: int, rule: str, segments: Sequence[Segment]) -> None:
        self._threads, self._kernel = threads, RULES[rule]
        blocks = [
            (start, min(start + update.BLOCK, s.stop), s.lr_mult, s.decay_mult)
            for s in segments
            for start in range(s.start, s.stop, update.BLOCK)
        ]
        table = np.array(blocks, np.float64).reshape(-1, 4)
        self._starts, self._stops = table[:, 0].astype(np.int64), table[:, 1].astype(np.int64)
        self._lr_mults, self._decay_mults = table[:, 2], table[:, 3]

    def __call__(
        self, weights: Array, gradients: Array, history: Sequence[Array], rate: float,
        decay: float, l1: bool, scale: float, numbers: Sequence[float],
    ) -> None:  # fmt: skip
        use_threads(self._threads)
        rates = (rate * self._lr_mults).astype(np.float32)
        decays = (decay * self._decay_mults).astype(np.float32)
        none = np.zeros_like(decays)
        self._kernel(
            weights, gradients, *history, self._starts, self._stops, rates,
            *((none, decays) if l1 else (decays, none)), np.float32(scale),
            *map(np.float32, numbers),
        )  # fmt: skip
