"""Dropout with the CPU's masks, drawn again in backward instead of kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import BackendError
from ..blob import Blob
from ..plans import Draw, MaskedPlan
from ..tensor import Tensor
from .tensor import source, target

if TYPE_CHECKING:
    from . import CudaBackend


class Dropout(MaskedPlan):
    def __init__(self, backend: CudaBackend, x: Blob, y: Blob, ratio: float, scale: float) -> None:
        self.kernels, self.x, self.y = backend.kernels, x, y
        self.ratio, self.scale = ratio, scale
        self._draw: Draw | None = None

    def forward(self, draw: Draw) -> None:
        self._draw = draw
        self._run(self.x.value, self.y.value)

    def backward(self) -> None:
        self._run(self.y.gradient, self.x.gradient)

    def _run(self, given: Tensor, made: Tensor) -> None:
        draw = self._draw
        if draw is None:
            raise BackendError("dropout: backward before any forward pass has drawn a mask")
        x, y = source(given, made.kind), target(made)
        per_sample = x.size // max(self.x.num, 1)
        self.kernels["dropout", made.kind](
            x.size, x, per_sample, draw.key, draw.step, draw.first_sample, self.ratio, self.scale,
            y,
        )  # fmt: skip
