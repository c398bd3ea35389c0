"""Dropout from the global random sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import BackendError
from ..blob import Blob
from ..plans import Draw, MaskedPlan
from ..tensor import Array

if TYPE_CHECKING:
    from . import NumPyBackend


class Dropout(MaskedPlan):
    """One number per element in row-major order within its sample, whatever the layout."""

    def __init__(self, backend: NumPyBackend, x: Blob, y: Blob, ratio: float, scale: float) -> None:
        self.backend, self.x, self.y, self.ratio, self.scale = backend, x, y, ratio, scale
        if x.value is not y.value:  # in place, the layout is the producer's to choose
            y.lay_out(backend.plain_layout(y.shape))
        self._kept: Array | None = None

    def forward(self, draw: Draw) -> None:
        per_sample = self.x.count // max(self.x.num, 1)
        drawn = self.backend.uniform(draw, self.x.num, per_sample)
        self._kept = (drawn >= self.ratio).reshape(self.x.shape)
        self.y.data[...] = self._masked(self.x.data)

    def backward(self) -> None:
        self.x.diff[...] = self._masked(self.y.diff)

    def _masked(self, values: Array) -> Array:
        if self._kept is None:
            raise BackendError("dropout: backward before any forward pass has drawn a mask")
        return self.backend.xp.where(self._kept, values * self.scale, 0)
