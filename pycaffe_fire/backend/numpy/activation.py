"""ReLU, also leaky."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..blob import Blob
from ..plans import Plan
from ..tensor import Array

if TYPE_CHECKING:
    from . import NumPyBackend


def rectify(xp: Any, x: Array, slope: float, out: Array) -> None:
    """out = max(x, 0) + slope * min(x, 0); out may be x."""
    negative = slope * xp.minimum(x, 0) if slope else None
    xp.maximum(x, 0, out=out)
    if negative is not None:
        out += negative


class ReLU(Plan):
    """Backward looks at the output, which for slope >= 0 has the input's sign, so that in place
    is right too. For slope < 0 Caffe looks at the input, in place or not; so do we.
    """

    def __init__(self, backend: NumPyBackend, x: Blob, y: Blob, slope: float) -> None:
        self.xp, self.x, self.y, self.slope = backend.xp, x, y, slope
        if x.value is not y.value:  # in place, the layout is the producer's to choose
            y.lay_out(backend.plain_layout(y.shape))

    def forward(self) -> None:
        rectify(self.xp, self.x.data, self.slope, out=self.y.data)

    def backward(self) -> None:
        sign = self.y.data if self.slope >= 0 else self.x.data
        self.x.diff[...] = self.y.diff * self.xp.where(sign > 0, 1, self.slope).astype(sign.dtype)
