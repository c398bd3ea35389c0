"""Inner products whose outputs or inputs are shared among threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..numpy.inner_product import InnerProduct as Plain
from ..tensor import NATIVE, ZERO, Array

if TYPE_CHECKING:
    from . import BlasBackend

PRODUCT = 1 << 18  # numbers of a product that wait in a cache to be added


class InnerProduct(Plain):
    """NumPy's, in parts."""

    def __init__(
        self, backend: BlasBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int,
        transpose: bool, relu: float | None,
    ) -> None:  # fmt: skip
        super().__init__(backend, x, w, b, y, axis, transpose, relu)
        self.backend = backend

    def share(self, count: int, run: Callable[[int, int], None]) -> None:
        self.backend.share(count, run)

    def _add_weights(self, dy: Array) -> None:
        gradient = self.w.gradient
        adds = gradient.fresh != ZERO
        if not adds:  # it is written as a whole
            gradient.allocate()
            gradient.fresh = NATIVE
        x, dw = self._x(self.x.data), self._w(self.w.diff)
        step = max(1, PRODUCT // self._inputs)

        def multiply(first: int, stop: int) -> None:
            if not adds:
                np.matmul(dy[:, first:stop].T, x, out=dw[first:stop])
                return
            for start in range(first, stop, step):
                rows = slice(start, min(start + step, stop))
                memory = self.backend.scratch((rows.stop - start) * self._inputs, "product")
                product = memory.reshape(-1, self._inputs)
                np.matmul(dy[:, rows].T, x, out=product)
                dw[rows] += product

        self.share(self._outputs, multiply)
