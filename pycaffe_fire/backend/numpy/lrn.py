"""Local response normalisation, across channels or within each, with exact gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import Plan
from ..tensor import Array

if TYPE_CHECKING:
    from . import NumPyBackend


class LRN(Plan):
    """y = x s^-beta with s = k + alpha/n * (x^2 summed over the region); borders are zero padded.

    dx = dy s^-beta - 2 alpha beta / n * x * (dy x s^(-beta-1) summed over the region), because
    regions are symmetric. Backward looks at x alone: y may have been changed in place since.
    """

    def __init__(
        self, backend: NumPyBackend, x: Blob, y: Blob, size: int, alpha: float, beta: float,
        k: float, across: bool,
    ) -> None:  # fmt: skip
        self.xp, self.x, self.y = backend.xp, x, y
        self.size, self.beta, self.k = size, beta, k
        self.axes = (1,) if across else tuple(range(2, len(x.shape)))
        self.factor = alpha / size ** len(self.axes)
        self._scale: Array = None
        y.lay_out(backend.plain_layout(y.shape))

    def forward(self) -> None:
        x = self.x.data
        self._scale = self._region_sums(x * x) * self.factor + self.k
        self.y.data[...] = x * self._scale**-self.beta

    def backward(self) -> None:
        x, dy, scale = self.x.data, self.y.diff, self._scale
        kept = dy * scale**-self.beta
        sums = self._region_sums(kept * x / scale)
        self.x.diff[...] = kept - (2 * self.factor * self.beta) * x * sums

    def _region_sums(self, values: Array) -> Array:
        """A box of `size` around every element, one axis at a time."""
        for axis in self.axes:
            lines = values.swapaxes(0, axis)
            sums = lines.copy()
            for distance in range(1, min(self.size // 2, len(lines) - 1) + 1):
                sums[distance:] += lines[:-distance]
                sums[:-distance] += lines[distance:]
            values = sums.swapaxes(0, axis)
        return values
