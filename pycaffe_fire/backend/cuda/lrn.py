"""Local response normalisation by kernels, across channels or within each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..base import Plan
from ..blob import Blob
from .geometry import AXES, lifted
from .tensor import source, target

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
        spatial = x.shape[2:]
        half = size // 2
        halves = [half, 0, 0, 0] if across else [0, *lifted([half] * len(spatial), 0)]
        self.factor = alpha / size ** (1 if across else len(spatial))
        box = np.array([x.shape[1], *lifted(spatial), *halves], np.int32)
        self._box = backend.xp.asarray(box)
        self._scale = backend.keep(x.count)
        backend.reserve(x.count)

    def forward(self) -> None:
        kind = self.y.value.kind
        x, y = source(self.x.value, kind), target(self.y.value)
        self.kernels["lrn", kind](
            x.size, x, self._box, self.factor, self.beta, self.k, self._scale(), y
        )

    def backward(self) -> None:
        kind = self.x.gradient.kind
        x, dy = source(self.x.value, kind), source(self.y.gradient, kind)
        dx = target(self.x.gradient)
        ratio = self.backend.scratch(x.size)
        self.kernels["lrn_ratio", kind](x.size, x, dy, self._scale(), self.beta, ratio)
        self.kernels["lrn_backward", kind](
            x.size, x, dy, self._scale(), ratio, self._box, self.factor, self.beta, dx
        )
