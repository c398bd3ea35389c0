"""The weighted sum of several inputs, with an optional ReLU after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base import JoinPlan
from ..blob import Blob
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
        kind, y, last = self.y.value.kind, target(self.y.value), len(self.xs) - 1
        for i, (x, factor) in enumerate(zip(self.xs, self.coefficients, strict=True)):
            kernel = self.kernels["scaled_add" if i else "scaled_copy", kind]
            part, last_one = source(x.value, kind), int(relu and i == last)
            kernel(y.size, part, factor, last_one, self.relu or 0.0, y)

    def backward(self, wanted: Sequence[bool]) -> None:
        for i, (x, factor) in enumerate(zip(self.xs, self.coefficients, strict=True)):
            if wanted[i]:
                kind = x.gradient.kind
                dy, dx = source(self.y.gradient, kind), target(x.gradient)
                self.kernels["scaled_copy", kind](dx.size, dy, factor, 0, 0.0, dx)
