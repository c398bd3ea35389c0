"""Local response normalisation by kernels, across channels or within each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..plans import Plan
from .geometry import AXES, lifted
from .tensor import follow, own

if TYPE_CHECKING:
    from . import CudaBackend


class LRN(Plan):
    """Keeps the normaliser for the way back, which looks at x and never at y."""

    @staticmethod
    def supports(x: Blob) -> bool:
        return 2 <= len(x.shape) <= 2 + AXES and 0 not in x.shape

    def __init__(
        self, backend: CudaBackend, x: Blob, y: Blob, size: int, alpha: float, beta: float,
        k: float, across: bool,
    ) -> None:  # fmt: skip
        self.backend, self.kernels, self.x, self.y = backend, backend.kernels, x, y
        self.beta, self.k = beta, k
        follow(x, y)
        self._last = own(y.value).last
        spatial = x.shape[2:]
        half = size // 2
        around = half if across else 0, lifted([0 if across else half] * len(spatial), 0)
        extent = x.shape[1], lifted(spatial)
        self.factor = alpha / size ** (1 if across else len(spatial))
        box = np.array([*self._axes(*extent), *self._axes(*around)], np.int32)
        self._box = backend.xp.asarray(box)
        self._scale = backend.keep(x.count)
        backend.reserve(x.count)

    def _axes(self, channels: int, spatial: list[int]) -> list[int]:
        """Numbers of the box in the order of memory."""
        return [*spatial, channels] if self._last else [channels, *spatial]

    def forward(self) -> None:
        kind = self.y.value.kind
        x = own(self.x.value).read_flat(kind, self._last)
        y = own(self.y.value).write_flat(self._last)
        self.kernels["lrn", kind](
            x.size, x, self._box, self.factor, self.beta, self.k, self._scale(), y
        )

    def backward(self) -> None:
        kind = self.x.gradient.kind
        x = own(self.x.value).read_flat(kind, self._last)
        dy = own(self.y.gradient).read_flat(kind, self._last)
        dx = own(self.x.gradient).write_flat(self._last)
        ratio = self.backend.scratch(x.size)
        self.kernels["lrn_ratio", kind](x.size, x, dy, self._scale(), self.beta, ratio)
        self.kernels["lrn_backward", kind](
            x.size, x, dy, self._scale(), ratio, self._box, self.factor, self.beta, dx
        )
