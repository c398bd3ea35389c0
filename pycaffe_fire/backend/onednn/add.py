"""The sum of several tensors in one pass: how gradients meet at a split."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..tensor import Tensor
from .layouts import Descriptor, Program

if TYPE_CHECKING:
    from . import OneDNNBackend


class Sum:
    """total = sum of parts; total may be one of them and then goes first, as oneDNN wants it."""

    def __init__(self, backend: OneDNNBackend, parts: Sequence[Tensor], total: Tensor) -> None:
        layout = total.layout
        assert isinstance(layout, Descriptor)
        self._program = Program(backend)
        ordered = sorted(parts, key=lambda part: part is not total)
        sources = [self._program.source(part, layout) for part in ordered]
        self._program.sum(sources, (total, layout))

    def __call__(self) -> None:
        self._program.run()
