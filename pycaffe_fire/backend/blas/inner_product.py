"""Inner products whose outputs or inputs are shared among threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..blob import Blob
from ..numpy.inner_product import InnerProduct as Plain

if TYPE_CHECKING:
    from . import BlasBackend


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
