"""Concatenation along one axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import JoinPlan
from ..tensor import Array

if TYPE_CHECKING:
    from . import NumPyBackend


class Concat(JoinPlan):
    """Slices of the output are copies of the inputs."""

    def __init__(self, backend: NumPyBackend, xs: Sequence[Blob], y: Blob, axis: int) -> None:
        self.xs, self.y, self.axis = list(xs), y, axis
        y.lay_out(backend.plain_layout(y.shape))

    def forward(self, activate: bool = True) -> None:
        for x, part in zip(self.xs, self._parts(self.y.data), strict=True):
            part[...] = x.data

    def backward(self, wanted: Sequence[bool]) -> None:
        for i, part in enumerate(self._parts(self.y.diff)):
            if wanted[i]:
                self.xs[i].diff[...] = part

    def _parts(self, values: Array) -> Iterator[Array]:
        """The slice of y that belongs to each input."""
        start = 0
        for x in self.xs:
            stop = start + x.shape[self.axis]
            yield values.swapaxes(0, self.axis)[start:stop].swapaxes(0, self.axis)
            start = stop
