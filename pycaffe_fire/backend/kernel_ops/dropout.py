"""Dropout with a compiled kernel that draws its mask again in backward instead of keeping it."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..compiled import available, use_threads
from ..kernels import dropout
from ..plans import Draw, MaskedPlan
from ..tensor import NATIVE, Tensor

if TYPE_CHECKING:
    from . import KernelBackend


class Dropout(MaskedPlan):
    """Works in place and on blocked layouts."""

    @staticmethod
    def supports(x: Blob) -> bool:
        if not available() or x.value.layout.grid is None:
            return False
        _, outer, _, inner = x.value.layout.grid
        return x.value.layout.is_plain or outer == 1 or inner % 4 == 0

    def __init__(
        self, backend: KernelBackend, x: Blob, y: Blob, ratio: float, scale: float
    ) -> None:
        self.backend, self.x, self.y = backend, x, y
        y.lay_out(x.value.layout)
        self._view = x.value.layout.grid
        if x.value.layout.is_plain:
            self._view = (x.num, 1, x.count // max(x.num, 1), 1)
        backend.expect([dropout.apply])
        # A draw is the upper 24 bits of a word, so words themselves can be compared.
        least = ceil(float(np.float32(ratio)) * 2**24) << 8
        self._numbers = (np.uint32(least), np.float32(scale))
        self._draw = Draw(0, 0, 0)

    def forward(self, draw: Draw) -> None:
        self._draw = draw
        self._run(self.x.value, self.y.value)

    def backward(self) -> None:
        self._run(self.y.gradient, self.x.gradient)

    def _run(self, source: Tensor, target: Tensor) -> None:
        source.sync()
        target.allocate()
        assert source.buffer is not None and target.buffer is not None and self._view is not None
        x, y = (
            flat[: prod(self._view)].reshape(self._view) for flat in (source.buffer, target.buffer)
        )
        use_threads(self.backend.threads)
        draw = self._draw
        counters = np.uint64(draw.key), np.uint64(draw.step), np.uint64(draw.first_sample)
        dropout.apply(x, y, self._numbers, counters)
        target.fresh = NATIVE
