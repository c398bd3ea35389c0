"""The weighted sum of several inputs, with an optional ReLU after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base import JoinPlan
from ..blob import Blob
from ..tensor import Array, Tensor
from .launch import Kernels, kind_of
from .tensor import own, source, target

if TYPE_CHECKING:
    from . import CudaBackend

AT_ONCE = 4  # tensors that a kernel takes


def add_up(
    kernels: Kernels, terms: Sequence[tuple[Array, float]], y: Array, relu: float | None = None
) -> None:
    """y = the sum of array * factor, then ReLU; y may be the first of them."""
    kernel = kernels["weighted_sum", kind_of(y)]
    now, rest = terms[:AT_ONCE], terms[AT_ONCE:]
    while True:
        missing = AT_ONCE - len(now)
        arrays = [array for array, _ in now] + [None] * missing
        factors = [factor for _, factor in now] + [0.0] * missing
        last = not rest
        rectifies = int(last and relu is not None)
        kernel(y.size, *arrays, *factors, rectifies, (relu or 0.0) if last else 0.0, y)
        if last:
            return
        now, rest = [(y, 1.0), *rest[: AT_ONCE - 1]], rest[AT_ONCE - 1 :]


class WeightedSum(JoinPlan):
    """Four inputs in one pass; y must not be one of them."""

    def __init__(
        self, backend: CudaBackend, xs: Sequence[Blob], y: Blob, coefficients: Sequence[float],
        relu: float | None,
    ) -> None:  # fmt: skip
        self.kernels, self.xs, self.y = backend.kernels, list(xs), y
        self.coefficients, self.relu = list(coefficients), relu

    def forward(self, activate: bool = True) -> None:
        kind = self.y.value.kind
        terms = [
            (source(x.value, kind), factor)
            for x, factor in zip(self.xs, self.coefficients, strict=True)
        ]
        add_up(self.kernels, terms, target(self.y.value), self.relu if activate else None)

    def backward(self, wanted: Sequence[bool]) -> None:
        all_of_them = zip(self.xs, self.coefficients, wanted, strict=True)
        targets = [(x.gradient, factor) for x, factor, wants in all_of_them if wants]
        for kind in dict.fromkeys(tensor.kind for tensor, _ in targets):
            alike = [pair for pair in targets if pair[0].kind == kind]
            for first in range(0, len(alike), AT_ONCE):
                self._spread(kind, alike[first : first + AT_ONCE])

    def _spread(self, kind: str, targets: Sequence[tuple[Tensor, float]]) -> None:
        """Also back through a ReLU for which the gradient of y has been waiting."""
        given = own(self.y.gradient)
        relu = given.take_relu() if kind == given.kind else None
        dy, missing = source(given, kind), AT_ONCE - len(targets)
        sign = None if relu is None else source(relu.sign, kind)
        factors = [factor for _, factor in targets] + [0.0] * missing
        arrays = [target(tensor) for tensor, _ in targets] + [None] * missing
        self.kernels["weighted_spread", kind](
            dy.size, dy, sign, 0.0 if relu is None else relu.slope, *factors,
            None if relu is None else given.overwrite(), *arrays,
        )  # fmt: skip
