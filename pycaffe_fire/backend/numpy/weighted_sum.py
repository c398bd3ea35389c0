"""The weighted sum of several inputs, with an optional ReLU after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import JoinPlan
from ..tensor import Array, Tensor

if TYPE_CHECKING:
    from . import NumPyBackend


class WeightedSum(JoinPlan):
    """y = sum of coefficient * x; the ReLU's gradient is its own layer's business."""

    def __init__(
        self, backend: NumPyBackend, xs: Sequence[Blob], y: Blob, coefficients: Sequence[float],
        relu: float | None,
    ) -> None:  # fmt: skip
        self.xp, self.xs, self.y = backend.xp, list(xs), y
        self.coefficients, self.relu = list(coefficients), relu
        if all(y is not x for x in xs):
            self._lay_out(backend)

    def _lay_out(self, backend: NumPyBackend) -> None:
        self.y.lay_out(backend.plain_layout(self.y.shape))

    def _values(self, tensor: Tensor) -> Array:
        """A tensor as an array, not to be written."""
        return tensor.array

    def _store(self, tensor: Tensor, values: Array) -> None:
        tensor.array[...] = values

    def forward(self, activate: bool = True) -> None:
        total = self.coefficients[0] * self._values(self.xs[0].value)
        for x, coefficient in zip(self.xs[1:], self.coefficients[1:], strict=True):
            values = self._values(x.value)
            total += values if coefficient == 1 else coefficient * values
        if self.relu is not None and activate:
            total = self.xp.where(total > 0, total, self.relu * total)
        self._store(self.y.value, total)

    def backward(self, wanted: Sequence[bool]) -> None:
        dy = self._values(self.y.gradient)
        for i in reversed(range(len(self.xs))):  # in place, the first gradient is dy itself
            if wanted[i]:
                self._store(self.xs[i].gradient, self.coefficients[i] * dy)
