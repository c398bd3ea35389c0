"""1x1 convolutions that leave out pixels, as where ResNets halve their images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..compiled import available, use_threads
from ..kernels.strides import spread_pixels
from .convolution import Convolution
from .grids import grid_of, seen, written
from .layouts import Descriptor, Lowered, Program
from .library import FORWARD_TRAINING, dims

if TYPE_CHECKING:
    from ..plans import Window
    from .layouts import OneDNNTensor
    from .weighted import Runnable


class Strided(Convolution):
    """The data gradient is that of an image of the pixels that were read, brought to their places:
    the library's own takes two to four times as long."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        if self._suits_kernel:
            self.backend.expect([], [spread_pixels])

    @staticmethod
    def is_one(window: Window, groups: int, transposed: bool) -> bool:
        """Is it one in two dimensions, without borders?"""
        pixels = window.kernel == (1, 1) and max(window.stride) > 1 and not any(window.pad)
        return pixels and groups == 1 and not transposed

    @property
    def _suits_kernel(self) -> bool:
        return available() and not self.backend.rounds_operands and not self.is_slow

    def _data_program(self) -> Runnable:
        if not self._suits_kernel:
            return super()._data_program()
        program, small = self._of_read_pixels()
        blocks = grid_of(self.x.gradient.layout)[1::2]
        if grid_of(small.layout)[1::2] != blocks:
            return super()._data_program()
        planes, inner = blocks[0] * self.x.shape[0], blocks[1]

        def run() -> None:
            program.run()
            use_threads(self.backend.threads)
            spread_pixels(
                seen(small).reshape(planes, *self.y.shape[2:], inner),
                written(self.x.gradient).reshape(planes, *self.x.shape[2:], inner),
                self.window.stride,
            )

        return Lowered(run)

    def _of_read_pixels(self) -> tuple[Program, OneDNNTensor]:
        """The gradient of the pixels that were read, and where it will be."""
        shape = (*self.x.shape[:2], *self.y.shape[2:])
        geometry = [dims(each) for each in ((1, 1), (0, 0), (0, 0), (0, 0))]
        hint = self._create(
            "forward", FORWARD_TRAINING, self.algorithm, self._operand(shape),
            self._operand(self._plain_weights.shape), None, self._any(self.y.shape), *geometry,
            None,
        )  # fmt: skip
        made = self._gradient_of(shape, geometry, hint)
        self.library.destroy("primitive_desc", hint)
        program = Program(self.backend)
        dy, w = self._gradient_in(program, made), self._weights_in(program, made)
        plain = Descriptor.contiguous(self.library, shape)
        small = program.scratch(Descriptor.chosen(shape, made, "diff_src", plain))
        program.add(made, {"diff_dst": dy, "weights": w, "diff_src": small})
        return program, small
