"""The sum of several tensors: how gradients meet at a split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..tensor import Tensor
from .tensor import source, target

if TYPE_CHECKING:
    from . import CudaBackend


class Sum:
    """total = sum of parts; total may be one of them and then goes first."""

    def __init__(self, backend: CudaBackend, parts: Sequence[Tensor], total: Tensor) -> None:
        self.kernels, self.total = backend.kernels, total
        self.parts = sorted(parts, key=lambda part: part is not total)

    def __call__(self) -> None:
        kind = self.total.kind
        arrays = [source(part, kind) for part in self.parts]
        total = target(self.total)
        for i, (part, array) in enumerate(zip(self.parts, arrays, strict=True)):
            if i or part is not self.total:
                kernel = self.kernels["scaled_add" if i else "scaled_copy", kind]
                kernel(total.size, array, 1.0, 0, 0.0, total)
