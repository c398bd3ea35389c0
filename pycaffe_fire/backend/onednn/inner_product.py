"""Inner product on plain layouts.

Given a blocked source oneDNN would choose weight layouts whose conversions are slow, so a blocked
source is brought to plain order first; it is small beside the weights.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ...blob import Blob
from ..base import WeightedPlan
from ..tensor import Tensor
from .library import FORWARD_TRAINING
from .memory import Descriptor, Program

if TYPE_CHECKING:
    from . import OneDNNBackend


class InnerProduct(WeightedPlan):
    """y = relu(x w^T + b) over matrices (rows, inputs) x (outputs, inputs)."""

    def __init__(
        self, backend: OneDNNBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int,
        transpose: bool, relu: float | None,
    ) -> None:  # fmt: skip
        self.backend, self.library = backend, backend.library
        self.x, self.w, self.b, self.y, self.relu = x, w, b, y, relu
        rows, inputs = prod(x.shape[:axis]), prod(x.shape[axis:])
        outputs = prod(w.shape) // inputs
        matrix = Descriptor.contiguous
        self._x, self._y = (
            matrix(self.library, (rows, inputs)),
            matrix(self.library, (rows, outputs)),
        )
        if transpose:
            self._w = Descriptor.strided(self.library, (outputs, inputs), (1, outputs))
        else:
            self._w = matrix(self.library, (outputs, inputs))
        self._b = matrix(self.library, (outputs,)) if b else None
        y.lay_out(backend.plain_layout(y.shape))
        w.value.pinned = w.gradient.pinned = True
        self._hint = self._forward_descriptor(relu)
        self._forward = {True: self._forward_program(self._hint)}
        self._programs: dict[tuple[bool, ...], Program] = {}
        self._backward_data: Program | None = None

    def forward(self, activate: bool = True) -> None:
        activate = activate or self.relu is None
        if activate not in self._forward:
            self._forward[activate] = self._forward_program(self._forward_descriptor(None))
        self._forward[activate].run()

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        if weights or bias:
            add_w = weights and self.w.gradient.fresh != 0
            add_b = bias and self.b is not None and self.b.gradient.fresh != 0
            key = (weights, bias, add_w, add_b)
            if key not in self._programs:
                self._programs[key] = self._weights_program(*key)
            self._programs[key].run()
        if data:
            if self._backward_data is None:
                self._backward_data = self._data_program()
            self._backward_data.run()

    def _create(self, what: str, *arguments: Any) -> int:
        self.backend.use_threads()
        handles = [a.handle if isinstance(a, Descriptor) else a for a in arguments]
        name = f"inner_product_{what}_primitive_desc_create"
        return self.library.new(name, self.library.engine, *handles)

    def _forward_descriptor(self, relu: float | None) -> int:
        with self.backend.attributes(relu) as attributes:
            return self._create(
                "forward", FORWARD_TRAINING, self._x, self._w, self._b, self._y, attributes
            )

    def _rows(self, program: Program, tensor: Tensor) -> tuple[Tensor, Descriptor]:
        """The source as a plain matrix."""
        if tensor.layout.is_plain:
            return tensor, self._x
        plain = program.scratch(self.backend.plain_layout(tensor.shape))
        program.reorder(tensor, plain)
        return plain, self._x

    def _forward_program(self, made: int) -> Program:
        program = Program(self.backend)
        arguments: dict[str | int, Any] = {
            "src": self._rows(program, self.x.value),
            "weights": (self.w.value, self._w),
            "bias": (self.b.value, self._b) if self.b else None,
            "dst": (self.y.value, self._y),
        }
        program.add(made, arguments)
        return program

    def _data_program(self) -> Program:
        made = self._create("backward_data", self._x, self._w, self._y, self._hint, None)
        program = Program(self.backend)
        dx: Tensor = self.x.gradient
        if not dx.layout.is_plain:
            dx = program.scratch(self.backend.plain_layout(self.x.shape))
        program.add(
            made,
            {
                "diff_dst": (self.y.gradient, self._y),
                "weights": (self.w.value, self._w),
                "diff_src": (dx, self._x),
            },
        )
        if dx is not self.x.gradient:
            program.reorder(dx, self.x.gradient)
        return program

    def _weights_program(self, weights: bool, bias: bool, add_w: bool, add_b: bool) -> Program:
        wanted_bias = self._b if bias else None
        made = self._create(
            "backward_weights", self._x, self._w, wanted_bias, self._y, self._hint, None
        )
        program = Program(self.backend)
        arguments: dict[str | int, Any] = {
            "src": self._rows(program, self.x.value),
            "diff_dst": (self.y.gradient, self._y),
        }
        target = program.target(self.w.gradient, self._w, self._w, add_w, weights)
        arguments["diff_weights"], staged_weights = target
        staged_bias = None
        if wanted_bias is not None and self.b is not None:
            target = program.target(self.b.gradient, wanted_bias, wanted_bias, add_b)
            arguments["diff_bias"], staged_bias = target
        program.add(made, arguments)
        program.finish(staged_weights)
        program.finish(staged_bias)
        return program
