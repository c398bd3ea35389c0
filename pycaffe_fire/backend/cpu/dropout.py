"""Dropout that draws its mask again in backward instead of keeping it: native/dropout.c."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..plans import Draw, MaskedPlan
from ..tensor import Tensor
from . import library
from .grid import GridKernel, run_on
from .library import Floats

if TYPE_CHECKING:
    from .backend import CpuBackend


class DropoutKernel(GridKernel):
    """Keeps elements whose random words are at least `threshold`."""

    name = "dropout"
    x: Floats
    y: Floats
    key: int
    step: int
    first_sample: int
    threshold: int
    scale: float

    def check(self) -> None:
        self.need(x=self.elements, y=self.elements)


class Dropout(MaskedPlan):
    """Works in place and on blocked layouts."""

    @staticmethod
    def supports(x: Blob) -> bool:
        return library.available() and x.value.layout.grid is not None and 0 not in x.shape

    def __init__(self, backend: CpuBackend, x: Blob, y: Blob, ratio: float, scale: float) -> None:
        self.x, self.y = x, y
        y.lay_out(x.value.layout)
        grid = x.value.layout.grid
        assert grid is not None
        if x.value.layout.is_plain:  # without channels, too
            grid = (x.num, 1, x.count // x.num, 1)
        # A draw is the upper 24 bits of a word, so words themselves can be compared.
        threshold = ceil(float(np.float32(ratio)) * 2**24) << 8
        self._kernel = DropoutKernel(
            threads=backend.threads, **GridKernel.sizes(grid), threshold=threshold, scale=scale
        )

    def forward(self, draw: Draw) -> None:
        kernel = self._kernel
        kernel.key, kernel.step, kernel.first_sample = draw.key, draw.step, draw.first_sample
        self._run(self.x.value, self.y.value)

    def backward(self) -> None:
        self._run(self.y.gradient, self.x.gradient)

    def _run(self, source: Tensor, target: Tensor) -> None:
        run_on(self._kernel, {"x": source}, {"y": target})
