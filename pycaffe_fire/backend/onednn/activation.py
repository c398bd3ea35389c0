"""ReLU, also leaky, as an elementwise primitive; backward needs only the output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import Plan
from .layouts import Descriptor, Program
from .library import FORWARD_TRAINING, RELU_FROM_OUTPUT

if TYPE_CHECKING:
    from . import OneDNNBackend


class ReLU(Plan):
    """Right in place too: for slope >= 0 the output has the input's sign."""

    def __init__(self, backend: OneDNNBackend, x: Blob, y: Blob, slope: float) -> None:
        self.backend, self.x, self.y, self.slope = backend, x, y, slope
        y.lay_out(x.value.layout)
        library, layout = backend.library, y.value.layout
        assert isinstance(layout, Descriptor)
        self._layout = layout
        backend.use_threads()
        self._hint = library.new(
            "eltwise_forward_primitive_desc_create", library.engine, FORWARD_TRAINING,
            RELU_FROM_OUTPUT, layout.handle, layout.handle, slope, 0.0, None,
        )  # fmt: skip
        self._forward = Program(backend)
        self._forward.add(self._hint, {"src": x.value, "dst": y.value})
        self._backward: Program | None = None

    def forward(self) -> None:
        self._forward.run()

    def backward(self) -> None:
        if self._backward is None:
            self._backward = self._backward_program()
        self._backward.run()

    def _backward_program(self) -> Program:
        library, layout = self.backend.library, self._layout.handle
        self.backend.use_threads()
        made = library.new(
            "eltwise_backward_primitive_desc_create", library.engine, RELU_FROM_OUTPUT, layout,
            layout, layout, self.slope, 0.0, self._hint, None,
        )  # fmt: skip
        program = Program(self.backend)
        program.add(
            made,
            {
                "dst_for_backward": self.y.value,
                "diff_dst": self.y.gradient,
                "diff_src": self.x.gradient,
            },
        )
        return program
