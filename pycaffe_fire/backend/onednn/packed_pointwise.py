"""1x1 convolutions with weights that rarely change, by our own product."""

from __future__ import annotations

from math import prod

import numpy as np

from ..compiled import available
from ..kernels import packed_pointwise as kernels
from ..kernels.packed_pointwise import ENOUGH, OUTPUTS
from ..kernels.tiles import LANES
from ..plans import WeightedPlan
from .convolution import Convolution
from .grids import grid_of
from .layouts import OneDNNTensor, Program
from .pointwise import Pointwise

AT_ONCE = 50_000  # numbers of an image that stay in a core's cache, beside weights


class PackedPointwise(WeightedPlan):
    """Takes over from a direct plan; its weights are laid out in the order of use."""

    packs = joins = True

    @staticmethod
    def can(direct: Convolution) -> bool:
        """Is it a convolution of this kind, on layouts that the kernel understands?"""
        pixels = prod(direct.y.shape[2:])
        return (
            available() and Pointwise.is_one(direct.window, direct.groups, direct.transposed)
            and direct.w.shape[0] % LANES == direct.w.shape[1] % LANES == 0
            and direct.w.shape[0] >= OUTPUTS and _suits(direct.y.shape[0], pixels)
            and all(grid_of(blob.value.layout)[3] == LANES for blob in (direct.x, direct.y))
        )  # fmt: skip

    def __init__(self, direct: Convolution) -> None:
        self.backend, self.relu = direct.backend, direct.relu
        self.x, self.w, self.b, self.y = direct.x, direct.w, direct.b, direct.y
        outputs, inputs = self.w.shape[:2]
        self._weights = OneDNNTensor(self.backend, (-(-outputs // OUTPUTS), inputs, OUTPUTS))
        self._bias = OneDNNTensor(self.backend, (outputs,))
        self._programs: dict[bool, Program] = {}
        self.backend.expect([kernels.multiply])

    def pack(self) -> None:
        rows = self.w.value.copied().reshape(self.w.shape[:2])
        last = len(rows) - OUTPUTS
        starts = (min(start, last) for start in range(0, len(rows), OUTPUTS))
        self._weights.replace(np.stack([rows[start : start + OUTPUTS].T for start in starts]))
        if self.b is not None:
            self._bias.replace(self.b.value.copied())

    def forward(self, activate: bool = True) -> None:
        self.program(activate).run()

    def program(self, activate: bool = True) -> Program:
        fused = activate and self.relu is not None
        if fused not in self._programs:
            self._programs[fused] = self._made(self.relu if fused else None)
        return self._programs[fused]

    def _made(self, relu: float | None) -> Program:
        samples, _, pixels, _ = grid_of(self.x.value.layout)
        outputs, inputs = self.w.shape[:2]
        slope = int(np.float32(1 if relu is None else relu).view(np.int32))
        program = Program(self.backend)
        program.add_kernel(
            kernels.multiply, [self.x.value, self._weights, self._bias], self.y.value,
            [samples, inputs, outputs, pixels, self._parts(samples, pixels), slope],
        )  # fmt: skip
        return program

    def _parts(self, samples: int, pixels: int) -> int:
        """Into how many parts the pixels of an image go: as many as caches want, or some more so
        that all threads have the same to do."""
        groups, inputs, _ = self._weights.shape
        most = max(pixels // ENOUGH, 1)
        least = min(-(-pixels * inputs // AT_ONCE), most)
        threads = self.backend.threads
        even = (n for n in range(least, most + 1) if samples * groups * n % threads == 0)
        return next(even, most)

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        raise NotImplementedError  # for inference only


def _suits(samples: int, pixels: int) -> bool:
    """Are there tiles for so many pixels? Those of one would read the weights for every sample."""
    return pixels >= ENOUGH or samples == pixels == 1
