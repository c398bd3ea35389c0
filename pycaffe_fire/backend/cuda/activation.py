"""ReLU, also leaky."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base import Plan
from ..blob import Blob
from .tensor import Rectifier, own, source, target

if TYPE_CHECKING:
    from . import CudaBackend


class ReLU(Plan):
    """Backward looks at the output for slope >= 0, at the input for others, as the CPU does."""

    def __init__(self, backend: CudaBackend, x: Blob, y: Blob, slope: float) -> None:
        self.kernels, self.x, self.y, self.slope = backend.kernels, x, y, slope

    def forward(self) -> None:
        kind = self.y.value.kind
        x, y = source(self.x.value, kind), target(self.y.value)
        self.kernels["relu", kind](x.size, x, self.slope, y)

    def backward(self) -> None:
        if self.x.gradient is self.y.gradient and self.slope >= 0:
            own(self.x.gradient).rectify_later(Rectifier(self.y.value, self.slope))
            return
        kind = self.x.gradient.kind
        sign = source((self.y if self.slope >= 0 else self.x).value, kind)
        dy, dx = source(self.y.gradient, kind), target(self.x.gradient)
        self.kernels["relu_backward", kind](dx.size, sign, dy, self.slope, dx)
