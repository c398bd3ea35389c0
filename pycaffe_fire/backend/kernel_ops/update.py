"""Update rules as compiled kernels over whole flat buffers: one call per iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..compiled import use_threads
from ..kernels import update
from ..plans import Segment, SegmentDots, UpdateStep, pieces
from ..tensor import Array

Kernel = Callable[..., None]  # of kernels/update.py


class Update(UpdateStep):
    """Blocks of at most update.BLOCK elements, each inside one parameter."""

    def __init__(self, threads: int, kernel: Kernel, segments: Sequence[Segment]) -> None:
        self._threads, self._kernel = threads, kernel
        self._starts, self._stops, self._owners = _blocks(segments)
        mults = np.array([(s.lr_mult, s.decay_mult) for s in segments], np.float64).reshape(-1, 2)
        self._lr_mults, self._decay_mults = mults[self._owners].T

    def __call__(
        self, weights: Array, gradients: Array, history: Sequence[Array], rate: float,
        decay: float, l1: bool, scale: float, numbers: Sequence[float], rates: Array | None = None,
    ) -> None:  # fmt: skip
        use_threads(self._threads)
        own = rate * self._lr_mults if rates is None else rates[self._owners]
        decays = (decay * self._decay_mults).astype(np.float32)
        none = np.zeros_like(decays)
        blocks = (
            self._starts, self._stops, own.astype(np.float32),
            *((none, decays) if l1 else (decays, none)),
        )  # fmt: skip
        self._kernel(
            weights, gradients, *history, blocks, tuple(map(np.float32, (scale, *numbers)))
        )


class Dots(SegmentDots):
    """Every block on its own, then the blocks of a parameter from left to right."""

    def __init__(self, threads: int, segments: Sequence[Segment]) -> None:
        self._threads = threads
        self._starts, self._stops, owners = _blocks(segments)
        self._firsts = np.searchsorted(owners, np.arange(len(segments) + 1))
        self._sums = np.empty(self._starts.size, np.float64)

    def __call__(self, a: Array, b: Array) -> Array:
        use_threads(self._threads)
        update.block_dots(a, b, self._starts, self._stops, self._sums)
        each = np.split(self._sums, self._firsts[1:-1])
        return np.array([update.sum_in_order(sums) for sums in each], np.float64)


def _blocks(segments: Sequence[Segment]) -> tuple[Array, Array, Array]:
    starts, stops, owners = np.ascontiguousarray(pieces(segments, update.BLOCK).T)
    return starts, stops, owners
