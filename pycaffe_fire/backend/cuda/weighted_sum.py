"""The weighted sum of several inputs, with an optional ReLU after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import JoinPlan
from ..tensor import Array
from .launch import Kernels, kind_of
from .tensor import CudaTensor, cannot_move, follow, own

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
        follow(xs[0], y)
        cannot_move(y.value, *(blob.gradient for blob in (y, *xs)))

    def forward(self, activate: bool = True) -> None:
        made = own(self.y.value)
        terms = [
            (own(x.value).read_flat(made.kind, made.last), factor)
            for x, factor in zip(self.xs, self.coefficients, strict=True)
        ]
        add_up(self.kernels, terms, made.write_flat(made.last), self.relu if activate else None)

    def backward(self, wanted: Sequence[bool]) -> None:
        all_of_them = zip(self.xs, self.coefficients, wanted, strict=True)
        targets = [(own(x.gradient), factor) for x, factor, wants in all_of_them if wants]
        for form in dict.fromkeys((tensor.kind, tensor.last) for tensor, _ in targets):
            alike = [pair for pair in targets if (pair[0].kind, pair[0].last) == form]
            for first in range(0, len(alike), AT_ONCE):
                self._spread(*form, alike[first : first + AT_ONCE])

    def _spread(self, kind: str, last: bool, targets: Sequence[tuple[CudaTensor, float]]) -> None:
        """Also back through a ReLU for which the gradient of y has been waiting."""
        given = own(self.y.gradient)
        relu = given.take_relu() if (kind, last) == (given.kind, given.last) else None
        dy, missing = given.read_flat(kind, last), AT_ONCE - len(targets)
        sign = None if relu is None else own(relu.sign).read_flat(kind, last)
        factors = [factor for _, factor in targets] + [0.0] * missing
        arrays = [tensor.write_flat(last) for tensor, _ in targets] + [None] * missing
        self.kernels["weighted_spread", kind](
            dy.size, dy, sign, 0.0 if relu is None else relu.slope, *factors,
            None if relu is None else given.write_flat(last), *arrays,
        )  # fmt: skip
