"""Update rules as one kernel launch over whole flat buffers, or as array code on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..numpy import update as numpy_update
from ..plans import Formula, Segment, SegmentDots, UpdateStep, pieces
from ..tensor import Array

if TYPE_CHECKING:
    from . import CudaBackend

PIECE = 4096  # elements that one block of threads takes


class SkippableUpdate(UpdateStep):
    """An update that the device itself may call off."""

    _skip: Array | None = None

    def skip_where(self, skip: Array) -> None:
        """Do nothing whenever this number on the device is not 0."""
        self._skip = skip


class Update(SkippableUpdate):
    """Pieces of at most PIECE elements, each inside one parameter."""

    def __init__(self, backend: CudaBackend, kernel: str, segments: Sequence[Segment]) -> None:
        self._kernel = backend.kernels[kernel]
        rows = pieces(segments, PIECE)
        mults = np.array([(s.lr_mult, s.decay_mult) for s in segments], np.float64).reshape(-1, 2)
        table = np.concatenate([rows[:, :2], mults[rows[:, 2]]], axis=1)
        self._table = backend.xp.asarray(table)
        self._own_rates = self._table.copy()  # the same, but with rates for multipliers
        self._owners = backend.xp.asarray(rows[:, 2])
        self._gate = backend.kernels["gate_pieces"]
        self._gated = self._table.copy()

    def __call__(
        self, weights: Array, gradients: Array, history: Sequence[Array], rate: float,
        decay: float, l1: bool, scale: float, numbers: Sequence[float], rates: Array | None = None,
    ) -> None:  # fmt: skip
        table = self._table
        if rates is not None:
            table, rate = self._own_rates, 1.0
            table[:, 2] = rates[self._owners]
        if self._skip is not None:
            self._gate(len(table), table, self._skip, self._gated)
            table = self._gated
        self._kernel.blocks(
            len(table), table, gradients, weights, *history, rate, decay, int(l1), scale, *numbers
        )


class ArrayUpdate(SkippableUpdate, numpy_update.Update):
    """A rule without a kernel."""

    recordable = False  # a graph would repeat the numbers of the iteration that it recorded

    def __init__(self, backend: CudaBackend, formula: Formula, segments: Sequence[Segment]) -> None:
        super().__init__(backend.xp, formula, segments)

    def __call__(
        self, weights: Array, gradients: Array, history: Sequence[Array], rate: float,
        decay: float, l1: bool, scale: float, numbers: Sequence[float], rates: Array | None = None,
    ) -> None:  # fmt: skip
        changed = (weights, *history) if self._skip is not None else ()
        before = [array.copy() for array in changed]
        super().__call__(weights, gradients, history, rate, decay, l1, scale, numbers, rates)
        for array, old in zip(changed, before, strict=True):
            array[...] = self._xp.where(self._skip, old, array)

    def _own_rate(self, rates: Array, segment: int) -> Array:
        return rates[segment].astype(np.float32)  # a float would wait for the device


class Dots(SegmentDots):
    """Every piece by one block of threads, then the pieces of a parameter by another."""

    def __init__(self, backend: CudaBackend, segments: Sequence[Segment]) -> None:
        xp = backend.xp
        rows = pieces(segments, PIECE)
        firsts = np.searchsorted(rows[:, 2], np.arange(len(segments) + 1))
        self._piece_dots = backend.kernels["piece_dots"]
        self._sum_runs = backend.kernels["sum_runs"]
        self._pieces, self._firsts = xp.asarray(rows), xp.asarray(firsts)
        self._sums = xp.empty(len(rows), np.float64)
        self._totals = xp.empty(len(segments), np.float64)

    def __call__(self, a: Array, b: Array) -> Array:
        self._piece_dots.blocks(len(self._pieces), self._pieces, a, b, self._sums)
        self._sum_runs.blocks(self._totals.size, self._firsts, self._sums, self._totals)
        return self._totals.copy()
