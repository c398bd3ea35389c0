"""The weighted sum of several inputs, with an optional ReLU behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...blob import Blob
from ..base import JoinPlan
from .tensor import source, target

if TYPE_CHECKING:
    from . import CudaBackend


class WeightedSum(JoinPlan):
    """One pass per input; the last one applies the ReLU. y must not be one of the inputs."""

    def __init__(
        self, backend: CudaBackend, xs: Sequence[Blob], y: Blob, coefficients: Sequence[float],
        relu: float | None,
    ) -> None:  # fmt: skip
        self.kernels, self.xs, self.y = backend.kernels, list(xs), y
        self.coefficients, self.relu = list(coefficients), relu

    def forward(self, activate: bool = True) -> None:
        relu = activate and self.relu is not None
        y, last = target(self.y.value), len(self.xs) - 1
        for i, (x, factor) in enumerate(zip(self.xs, self.coefficients, strict=True)):
            kernel = self.kernels["scaled_add" if i else "scaled_copy"]
            kernel(y.size, source(x.value), factor, int(relu and i == last), self.relu or 0.0, y)

    def backward(self, wanted: Sequence[bool]) -> None:
        dy = source(self.y.gradient)
        for i, (x, factor) in enumerate(zip(self.xs, self.coefficients, strict=True)):
            if wanted[i]:
                dx = target(x.gradient)
                self.kernels["scaled_copy"](dx.size, dy, factor, 0, 0.0, dx)
