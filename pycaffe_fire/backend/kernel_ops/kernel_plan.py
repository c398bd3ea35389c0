"""Plans whose work is a compiled kernel of ours on the tensors' own memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from ..compiled import use_threads
from ..plans import Plan
from ..tensor import NATIVE, Tensor

if TYPE_CHECKING:
    from . import KernelBackend


class KernelPlan(Plan):
    """A subclass says how kernels see a tensor (`view`)."""

    backend: KernelBackend
    view: tuple[int, ...]

    def run(self, kernel: Any, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> None:
        """The last tensor is written, the others are read."""
        for tensor in tensors[:-1]:
            tensor.sync()
        tensors[-1].allocate()
        use_threads(self.backend.threads)
        views = [t.buffer[: prod(self.view)].reshape(self.view) for t in tensors]  # type: ignore[index]
        kernel(*views, *numbers)
        tensors[-1].fresh = NATIVE
