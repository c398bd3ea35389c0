"""ReLU, also leaky."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import Plan
from .layouts import shared_width
from .tensor import Rectifier, can_move, follow, own

if TYPE_CHECKING:
    from . import CudaBackend


class ReLU(Plan):
    """Backward looks at the output for slope >= 0, at the input for others, as the CPU does."""

    def __init__(self, backend: CudaBackend, x: Blob, y: Blob, slope: float) -> None:
        self.kernels, self.x, self.y, self.slope = backend.kernels, x, y, slope
        follow(x, y)
        if x.value is not y.value:
            can_move(y)

    def forward(self) -> None:
        made = own(self.y.value)
        x, y = own(self.x.value).read(made.kind, made.last), made.write()
        self.kernels["relu", made.kind](
            self.y.count, x.array, self.slope, shared_width(made.order, x.pitch, y.pitch), x.pitch,
            y.pitch, y.array,
        )  # fmt: skip

    def backward(self) -> None:
        if self.x.gradient is self.y.gradient and self.slope >= 0:
            own(self.x.gradient).rectify_later(Rectifier(self.y.value, self.slope))
            return
        made = own(self.x.gradient)
        form = made.kind, made.last
        sign = own((self.y if self.slope >= 0 else self.x).value).read(*form)
        dy, dx = own(self.y.gradient).read(*form), made.write()
        pitches = sign.pitch, dy.pitch, dx.pitch
        self.kernels["relu_backward", made.kind](
            self.x.count, sign.array, dy.array, self.slope, shared_width(made.order, *pitches),
            *pitches, dx.array,
        )  # fmt: skip
