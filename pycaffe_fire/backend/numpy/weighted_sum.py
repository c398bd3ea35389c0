"""The weighted sum of several inputs, with an optional ReLU after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..base import JoinPlan
from ..blob import Blob

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
            y.lay_out(backend.plain_layout(y.shape))

    def forward(self, activate: bool = True) -> None:
        total = self.coefficients[0] * self.xs[0].data
        for x, coefficient in zip(self.xs[1:], self.coefficients[1:], strict=True):
            total += x.data if coefficient == 1 else coefficient * x.data
        if self.relu is not None and activate:
            total = self.xp.where(total > 0, total, self.relu * total)
        self.y.data[...] = total

    def backward(self, wanted: Sequence[bool]) -> None:
        dy = self.y.diff
        for i in reversed(range(len(self.xs))):  # in place, the first gradient is dy itself
            if wanted[i]:
                self.xs[i].diff[...] = self.coefficients[i] * dy
