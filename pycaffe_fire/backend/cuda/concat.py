"""Concatenation along one axis: rows copied into their place, and back."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from ..base import JoinPlan
from ..blob import Blob
from .tensor import source, target

if TYPE_CHECKING:
    from . import CudaBackend


class Concat(JoinPlan):
    def __init__(self, backend: CudaBackend, xs: Sequence[Blob], y: Blob, axis: int) -> None:
        self.kernels, self.xs, self.y = backend.kernels, list(xs), y
        self._rows = [prod(x.shape[axis:]) for x in xs]
        self._firsts = [sum(self._rows[:i]) for i in range(len(xs))]
        self._row = prod(y.shape[axis:])

    def forward(self, activate: bool = True) -> None:
        kind, y = self.y.value.kind, target(self.y.value)
        for x, row, first in zip(self.xs, self._rows, self._firsts, strict=True):
            part = source(x.value, kind)
            self.kernels["copy_part", kind](part.size, part, row, 0, row, self._row, first, y)

    def backward(self, wanted: Sequence[bool]) -> None:
        for x, row, first, want in zip(self.xs, self._rows, self._firsts, wanted, strict=True):
            if want:
                kind = x.gradient.kind
                dy, part = source(self.y.gradient, kind), target(x.gradient)
                self.kernels["copy_part", kind](part.size, dy, self._row, first, row, row, 0, part)
