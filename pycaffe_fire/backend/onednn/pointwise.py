"""Convolutions whose windows are single pixels, with gradients of our own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..compiled import available, use_threads
from ..kernels import pointwise as kernels
from ..kernels.tiles import LANES
from .convolution import Convolution
from .grids import added_to, grid_of, read
from .layouts import Descriptor, Lowered, Program
from .library import F32, FORWARD_TRAINING

if TYPE_CHECKING:
    from ..plans import Window
    from .weighted import Runnable

# Where the library has this for forward, its own gradients take longer than ours (measured on
# MobileNet's layers: for data 1.07, for weights 1.12 times as long). Others were not measured.
SLOWER_BACKWARD = "jit_1x1:avx2"
NO_BIAS = np.empty(0, np.float32)


class Pointwise(Convolution):
    """The data gradient is the forward convolution of the transposed weights; the weight gradient
    is a kernel of ours where layouts are those of the library's own kernels."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self._suits_kernel:
            self.backend.expect([], [kernels.add_gradients])

    @staticmethod
    def is_one(window: Window, groups: int, transposed: bool) -> bool:
        moves = {*window.kernel, *window.stride} != {1} or any(window.pad)
        return not moves and groups == 1 and not transposed

    @property
    def _is_ours(self) -> bool:
        """Are gradients to be made our way?"""
        return (
            self._kind == F32 and not self._stored.is_plain
            and self.library.implementation(self._hint) == SLOWER_BACKWARD
        )  # fmt: skip

    def _data_program(self) -> Runnable:
        if not self._is_ours:
            return super()._data_program()
        turned, plain = self._stored.turned(), self._plain_weights.turned()
        made = self._create(
            "forward", FORWARD_TRAINING, self.algorithm, self._any(self.y.shape),
            self._any(plain.shape), None, self._any(self.x.shape), *self._geometry(), None,
        )  # fmt: skip
        program = Program(self.backend)
        wanted = Descriptor.chosen(plain.shape, made, "weights", plain)
        dy = program.source(self.y.gradient, self._chosen(self.y, made, "src"))
        w = program.source(self.w.value, wanted, turned)
        dx, staged = program.target(self.x.gradient, self._chosen(self.x, made, "dst"))
        program.add(
            made, {"src": program.rounded(dy), "weights": program.rounded(w), "dst": dx}
        )  # fmt: skip
        program.finish(staged)
        return program

    def _weights_program(self, weights: bool, bias: bool, add_w: bool, add_b: bool) -> Runnable:
        if not weights or not self._suits_kernel:
            return super()._weights_program(weights, bias, add_w, add_b)
        return Lowered(lambda: self._add_gradients(bias))

    @property
    def _suits_kernel(self) -> bool:
        x, dy, w = self.x.value.layout, self.y.gradient.layout, self.w.gradient.layout
        outputs, inputs = self.w.shape[:2]
        in_blocks = all(
            grid_of(layout)[1::2] == (channels // LANES, LANES)
            for layout, channels in ((x, inputs), (dy, outputs))
        )
        return (
            available() and self._is_ours and not self.backend.rounds_operands
            and in_blocks and inputs % LANES == outputs % LANES == 0
            and isinstance(w, Descriptor) and _is_blocks_of_both(w)
        )  # fmt: skip

    def _add_gradients(self, bias: bool) -> None:
        x, dy = read(self.x.value), read(self.y.gradient)
        dw = added_to(self.w.gradient)
        db = added_to(self.b.gradient) if bias and self.b is not None else NO_BIAS
        use_threads(self.backend.threads)
        kernels.add_gradients(x, dy, dw, db, self.backend.threads)


def _is_blocks_of_both(layout: Descriptor) -> bool:
    """Do weights lie as [outputs / LANES] [inputs / LANES] [LANES inputs] [LANES outputs]?"""
    facts = layout.library.describe(layout.handle)
    block = LANES * LANES
    return (
        facts["blocks"] == (LANES, LANES) and facts["block_axes"] == (1, 0)
        and facts["strides"][:2] == (block * (layout.shape[1] // LANES), block)
    )  # fmt: skip
