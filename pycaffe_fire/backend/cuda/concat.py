"""Concatenation along one axis: rows copied into their place, and back, four parts in a pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

from ..base import JoinPlan
from ..blob import Blob
from .tensor import source, target

if TYPE_CHECKING:
    from . import CudaBackend

AT_ONCE = 4  # parts that a kernel takes


class Concat(JoinPlan):
    def __init__(self, backend: CudaBackend, xs: Sequence[Blob], y: Blob, axis: int) -> None:
        self.kernels, self.xs, self.y = backend.kernels, list(xs), y
        self._widths = [prod(x.shape[axis:]) for x in xs]
        self._firsts = list(accumulate(self._widths, initial=0))
        self._width, self._rows = prod(y.shape[axis:]), prod(y.shape[:axis])

    def forward(self, activate: bool = True) -> None:
        kind, y = self.y.value.kind, target(self.y.value)
        for first in range(0, len(self.xs), AT_ONCE):
            parts = [source(x.value, kind) for x in self.xs[first : first + AT_ONCE]]
            missing, widths = AT_ONCE - len(parts), self._padded(first)
            self.kernels["join_parts", kind](
                self._rows * sum(widths), *parts, *[None] * missing, *widths, self._width,
                self._firsts[first], y,
            )  # fmt: skip

    def backward(self, wanted: Sequence[bool]) -> None:
        for kind in {x.gradient.kind for x, want in zip(self.xs, wanted, strict=True) if want}:
            dy = source(self.y.gradient, kind)
            for first in range(0, len(self.xs), AT_ONCE):
                parts = [
                    target(x.gradient) if want and x.gradient.kind == kind else None
                    for x, want in zip(self.xs[first:][:AT_ONCE], wanted[first:], strict=False)
                ]
                missing, widths = AT_ONCE - len(parts), self._padded(first)
                self.kernels["cut_parts", kind](
                    self._rows * sum(widths), dy, *widths, self._width, self._firsts[first],
                    *parts, *[None] * missing,
                )  # fmt: skip

    def _padded(self, first: int) -> list[int]:
        """The widths of the parts from `first` on that a kernel takes, 0 for those missing."""
        widths = self._widths[first : first + AT_ONCE]
        return widths + [0] * (AT_ONCE - len(widths))
