"""LRN with our compiled kernels.

oneDNN's is fast for one exponent and some sizes on some machines, keeps a workspace of twice the
tensor and falls to a reference loop elsewhere; ours serves every case alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..blob import Blob
from ..compiled import available
from ..kernels import lrn
from .kernel_plan import KernelPlan

if TYPE_CHECKING:
    from . import KernelBackend


class LRN(KernelPlan):
    """y = x * (k + alpha/n * sum of squares of the region)^-beta, n = size or size^2."""

    @staticmethod
    def supports(x: Blob, across: bool) -> bool:
        """True if channels lie in blocks that rows of the kernel hold as a whole."""
        grid = x.value.layout.grid
        return available() and grid is not None and not (across and lrn.ROW % grid[3])

    def __init__(
        self, backend: KernelBackend, x: Blob, y: Blob, size: int, alpha: float, beta: float,
        k: float, across: bool,
    ) -> None:  # fmt: skip
        self.backend, self.x, self.y = backend, x, y
        y.lay_out(x.value.layout)
        grid = x.value.layout.grid
        assert grid is not None
        num, outer, _, inner = grid
        height, width = x.shape[2:]
        area = size if across else size * size
        self._kernel: Any
        self._numbers = (inner, size, np.float32(alpha / area), np.float32(-beta), np.float32(k))
        if across:
            self._kernel, self.view = lrn.across, (num, outer, height * width * inner)
        else:
            self._kernel, self.view = lrn.within, (num * outer, height, width * inner)
        backend.expect([self._kernel])

    def forward(self) -> None:
        tensors = self.x.value, self.x.value, self.y.value
        self.run(self._kernel, tensors, (False, *self._numbers))

    def backward(self) -> None:
        tensors = self.x.value, self.y.gradient, self.x.gradient
        self.run(self._kernel, tensors, (True, *self._numbers))
