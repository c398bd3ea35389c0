"""Softmax on plain arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import Plan

if TYPE_CHECKING:
    from . import NumPyBackend


class Softmax(Plan):
    """dx = (dy - sum of y dy) y; needs the output alone, so that in place is right."""

    def __init__(self, backend: NumPyBackend, x: Blob, y: Blob, axis: int) -> None:
        self.backend, self.x, self.y, self.axis = backend, x, y, axis
        if x.value is not y.value:  # in place, the layout is the producer's to choose
            y.lay_out(backend.plain_layout(y.shape))

    def forward(self) -> None:
        self.y.data[...] = self.backend.softmax(self.x.data, self.axis)

    def backward(self) -> None:
        y, dy = self.y.data, self.y.diff
        dot = (y * dy).sum(axis=self.axis, keepdims=True)
        self.x.diff[...] = (dy - dot) * y
