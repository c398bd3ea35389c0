"""MAX and AVE pooling with Caffe's clipped windows, over any number of spatial axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import PoolingPlan, Window
from ..tensor import Array
from ..windows import divisors
from .shifts import shifts

if TYPE_CHECKING:
    from . import NumPyBackend

NOWHERE = -1


class Pooling(PoolingPlan):
    """MAX remembers which kernel cell won: the first of equals in row-major order.

    NaN wins over every number, so that a diverged net shows it; Caffe passes over it.
    """

    def __init__(
        self, backend: NumPyBackend, x: Blob, y: Blob, method: str, window: Window,
        lay_out: bool = True,
    ) -> None:  # fmt: skip
        self.backend, self.xp, self.x, self.y = backend, backend.xp, x, y
        self.method, self.window = method, window
        self._axes = len(window.kernel)
        into, out = x.shape[-self._axes :], y.shape[-self._axes :]
        self._shifts = shifts(into, out, window)
        self._divisors = self.xp.asarray(
            divisors(into, out, window, method == "AVE_INSIDE").astype(backend.dtype)
        )
        self._winner: Array = self.xp.full(y.shape if method == "MAX" else (), NOWHERE, "int32")
        if lay_out:
            y.lay_out(backend.plain_layout(y.shape))

    def forward(self) -> None:
        if self.method == "MAX":
            self._forward_max()
        else:
            x, y = self.x.data, self.y.data
            y[...] = 0
            for outputs, inputs in self._shifts:
                y[outputs] += x[inputs]
            y /= self._divisors

    def _forward_max(self) -> None:
        x, y = self.x.data, self.y.data
        y[...] = self.xp.finfo(y.dtype).min
        self._winner[...] = NOWHERE
        for cell, (outputs, inputs) in enumerate(self._shifts):
            seen, best, winner = x[inputs], y[outputs], self._winner[outputs]
            better = (seen > best) | (self.xp.isnan(seen) & ~self.xp.isnan(best))
            best[...] = self.xp.where(better, seen, best)
            winner[...] = self.xp.where(better, cell, winner)

    def backward(self) -> None:
        dx, dy = self.x.diff, self.y.diff
        if self.method != "MAX":
            dy = dy / self._divisors
        dx[...] = 0
        for cell, (outputs, inputs) in enumerate(self._shifts):
            part = dy[outputs]
            if self.method == "MAX":
                part = self.xp.where(self._winner[outputs] == cell, part, 0)
            dx[inputs] += part

    @property
    def mask(self) -> Array:
        """Caffe's second top of MAX: each winner's index in its flattened image, or -1."""
        xp, win = self.xp, self.window
        cell, place = self._winner, xp.zeros_like(self._winner)
        step = 1
        for axis in reversed(range(self._axes)):
            outputs = xp.arange(self.y.shape[axis - self._axes], dtype="int32")
            start = (outputs * win.stride[axis] - win.pad[axis]).reshape(
                -1, *(1 for _ in range(self._axes - 1 - axis))
            )
            place += (start + cell % win.kernel[axis]) * step
            cell = cell // win.kernel[axis]
            step *= self.x.shape[axis - self._axes]
        return xp.where(self._winner == NOWHERE, NOWHERE, place)
