"""The sum of several tensors: how gradients meet at a split."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from ..tensor import Tensor

if TYPE_CHECKING:
    from . import NumPyBackend


class Sum:
    """total = sum of parts from left to right; total may be one of them."""

    def __init__(self, backend: NumPyBackend, parts: Sequence[Tensor], total: Tensor) -> None:
        self.xp, self.parts, self.total = backend.xp, list(parts), total

    def __call__(self) -> None:
        self.total.array[...] = reduce(self.xp.add, [part.array for part in self.parts])
