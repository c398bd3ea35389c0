"""Update rules as one kernel launch over whole flat buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..base import Segment, UpdateStep
from ..tensor import Array

if TYPE_CHECKING:
    from . import CudaBackend

PIECE = 4096  # elements that one block of threads takes


class Update(UpdateStep):
    """Pieces of at most PIECE elements, each inside one parameter."""

    def __init__(self, backend: CudaBackend, rule: str, segments: Sequence[Segment]) -> None:
        self._kernel = backend.kernels[rule]
        pieces = [
            (start, min(start + PIECE, s.stop), s.lr_mult, s.decay_mult)
            for s in segments
            for start in range(s.start, s.stop, PIECE)
        ]
        self._pieces = len(pieces)
        self._table = backend.xp.asarray(np.array(pieces, np.float64).reshape(-1))

    def __call__(
        self, weights: Array, gradients: Array, history: Sequence[Array], rate: float,
        decay: float, l1: bool, scale: float, numbers: Sequence[float],
    ) -> None:  # fmt: skip
        self._kernel.blocks(
            self._pieces, self._table, gradients, weights, *history, rate, decay, int(l1), scale,
            *numbers,
        )  # fmt: skip
