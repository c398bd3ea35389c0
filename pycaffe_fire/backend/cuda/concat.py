"""Concatenation along one axis: inputs that lie in the output's memory need nothing, others are
copied into their place, and back, four in a pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import JoinPlan
from ..tensor import ChannelsLast, Tensor
from .tensor import CudaTensor, own

if TYPE_CHECKING:
    from . import CudaBackend

AT_ONCE = 4  # parts that a kernel takes


class Concat(JoinPlan):
    """Along channels, an input becomes a guest in the output's memory where the plan that writes
    it can do that, and nobody else reads it; its gradient does only once nobody is going to look at
    gradients after a pass (share_gradients), because the layer below may change it in place."""

    def __init__(self, backend: CudaBackend, xs: Sequence[Blob], y: Blob, axis: int) -> None:
        self.kernels, self.xs, self.y, self._axis = backend.kernels, list(xs), y, axis
        if axis == 1 and any(isinstance(x.value.layout, ChannelsLast) for x in xs):
            y.lay_out(ChannelsLast(y.shape))
        self._last = axis == 1 and own(y.value).last
        whole = (prod(y.shape[:axis]), prod(y.shape[axis:]))
        self._rows, self._width = whole if not self._last else (y.count // y.shape[1], y.shape[1])
        self._widths = [x.count // max(self._rows, 1) for x in xs]
        self._firsts = list(accumulate(self._widths, initial=0))
        self._take_in_values()

    def _take_in_values(self) -> None:
        if self._axis == 1:
            self._take_in(self.y.value, [x.value for x in self.xs], outlive=True)

    def share_gradients(self) -> None:
        if self._axis == 1:
            self._take_in(self.y.gradient, [x.gradient for x in self.xs], outlive=False)

    def _take_in(self, whole: Tensor, parts: Sequence[Tensor], outlive: bool) -> None:
        home = own(whole)
        for x, first, part in zip(self.xs, self._firsts, map(own, parts), strict=False):
            alone = sum(part is other for other in parts) == 1
            can = own(x.value).movable and own(x.gradient).movable and alone and x.count
            if part.home is None and can and _alike(part, home):
                part.move_in(home, first, outlive)

    def forward(self, activate: bool = True) -> None:
        whole, form = own(self.y.value), (self.y.value.kind, self._last)
        parts = [own(x.value) for x in self.xs]
        self._take_in_values()  # also those whose plans have been made since
        for part in parts:
            if part.home is whole:
                part.sync()
        if not whole.guests:
            y = whole.write_flat(self._last)
        else:
            whole.joined()
            y = whole.read_flat(*form)
        for first in self._copied(whole, parts):
            arrays = [
                None if part.home is whole else part.read_flat(*form)
                for part in parts[first : first + AT_ONCE]
            ]
            missing, widths = AT_ONCE - len(arrays), self._padded(first)
            self.kernels["join_parts", form[0]](
                self._rows * sum(widths), *arrays, *[None] * missing, *widths, self._width,
                self._firsts[first], y,
            )  # fmt: skip

    def backward(self, wanted: Sequence[bool]) -> None:
        whole = own(self.y.gradient)
        parts = [own(x.gradient) for x, want in zip(self.xs, wanted, strict=True)]
        whole.sync()
        for part, want in zip(parts, wanted, strict=True):
            if want and part.home is whole:
                part.joined()
        given = [want and part.home is not whole for part, want in zip(parts, wanted, strict=True)]
        for kind in dict.fromkeys(p.kind for p, want in zip(parts, given, strict=True) if want):
            dy = whole.read_flat(kind, self._last)
            for first in range(0, len(parts), AT_ONCE):
                arrays = [
                    part.write_flat(self._last) if want and part.kind == kind else None
                    for part, want in zip(parts[first:][:AT_ONCE], given[first:], strict=False)
                ]
                missing, widths = AT_ONCE - len(arrays), self._padded(first)
                if any(array is not None for array in arrays):
                    self.kernels["cut_parts", kind](
                        self._rows * sum(widths), dy, *widths, self._width, self._firsts[first],
                        *arrays, *[None] * missing,
                    )  # fmt: skip

    def _copied(self, whole: CudaTensor, parts: Sequence[CudaTensor]) -> list[int]:
        """The first of every four parts of which one must be copied."""
        starts = range(0, len(parts), AT_ONCE)
        return [s for s in starts if any(p.home is not whole for p in parts[s : s + AT_ONCE])]

    def _padded(self, first: int) -> list[int]:
        """The widths of the parts from `first` on that a kernel takes, 0 for those missing."""
        widths = self._widths[first : first + AT_ONCE]
        return widths + [0] * (AT_ONCE - len(widths))


def _alike(part: CudaTensor, home: CudaTensor) -> bool:
    """Can it lie there as it is?"""
    return part.kind == home.kind and part.last == home.last and home.home is None
