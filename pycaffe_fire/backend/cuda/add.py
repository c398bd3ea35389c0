"""The sum of several tensors: how gradients meet at a split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..tensor import Tensor
from .tensor import cannot_move, own
from .weighted_sum import add_up

if TYPE_CHECKING:
    from . import CudaBackend


class Sum:
    """total = sum of parts; total may be one of them and then goes first."""

    def __init__(self, backend: CudaBackend, parts: Sequence[Tensor], total: Tensor) -> None:
        self.kernels, self.total = backend.kernels, total
        self.parts = sorted(parts, key=lambda part: part is not total)
        cannot_move(total, *parts)

    def __call__(self) -> None:
        total = own(self.total)
        arrays = [own(part).read_flat(total.kind, total.last) for part in self.parts]
        add_up(self.kernels, [(array, 1.0) for array in arrays], total.write_flat(total.last))
