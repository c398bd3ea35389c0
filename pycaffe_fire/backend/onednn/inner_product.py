"""Inner product on plain layouts.

Given a blocked source oneDNN would choose weight layouts whose conversions are slow, so a blocked
source is brought to plain order first; it is small beside the weights. Forward is the library's
matrix product, which is several times as fast as its inner product where vectors are wide.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from ...errors import BackendError
from ..blob import Blob
from ..tensor import NATIVE, Array, Tensor
from .layouts import Descriptor, OneDNNTensor, Program, Seen
from .library import BF16, F32, FORWARD_TRAINING
from .weighted import Runnable, Weighted

if TYPE_CHECKING:
    from . import OneDNNBackend

# Rows that RowBlocks multiplies at a time: a multiple of the rows that the library's kernels for
# AVX2 (6) and AVX-512 (8) take at once, so that no row is a left-over that another kernel serves.
BLOCK = 24


class InnerProduct(Weighted):
    """y = relu(x w^T + b) over matrices (rows, inputs) x (outputs, inputs)."""

    kind = "inner_product"

    def __init__(
        self, backend: OneDNNBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int,
        transpose: bool, relu: float | None,
    ) -> None:  # fmt: skip
        super().__init__(backend, x, w, b, y, relu)
        self.rows, self.inputs = rows, inputs = prod(x.shape[:axis]), prod(x.shape[axis:])
        self.outputs = outputs = prod(w.shape) // inputs
        self.transpose = transpose
        matrix = Descriptor.contiguous
        self._x, self._y = (
            matrix(self.library, (rows, inputs)),
            matrix(self.library, (rows, outputs)),
        )
        strides = (1, outputs) if transpose else (inputs, 1)
        self._w = Descriptor.strided(self.library, (outputs, inputs), strides)
        self._w_turned = Descriptor.strided(self.library, (inputs, outputs), strides[::-1])
        self._b = matrix(self.library, (outputs,)) if b else None
        y.lay_out(backend.plain_layout(y.shape))
        w.value.pinned = w.gradient.pinned = True
        self._kind = backend.operand_kind
        self._hint = self._forward_hint()

    def _forward_hint(self) -> int:
        """The descriptor of a forward primitive; of float32, if the library has none of 16 bits."""
        x, w = (self._as_operand(layout) for layout in (self._x, self._w))
        try:
            return self._create("forward", FORWARD_TRAINING, x, w, self._b, self._y, None)
        except BackendError:
            if self._kind == F32:
                raise
        self._kind = F32
        return self._forward_hint()

    def _as_operand(self, layout: Descriptor) -> Descriptor:
        return layout.in_bf16() if self._kind == BF16 else layout

    def _operand(self, program: Program, seen: Seen) -> Seen:
        """What is seen in float32, as products take it."""
        return program.rounded(program.copied(seen, self._as_operand(seen[1])))

    def source_rows(self, program: Program, tensor: Tensor) -> tuple[Tensor, Descriptor]:
        """The source as a plain matrix."""
        if tensor.layout.is_plain:
            return tensor, self._x
        plain = program.scratch(self.backend.plain_layout(tensor.shape))
        program.reorder(tensor, plain)
        return plain, self._x

    def _forward_program(self, relu: float | None) -> Runnable:
        program, y = Program(self.backend), self.y.value
        x = self._operand(program, self.source_rows(program, self.x.value))
        w = self._operand(program, (self.w.value, self._w_turned))
        bias = None
        if self.b is not None:
            bias = self.b.value, Descriptor.contiguous(self.library, (1, self.b.count))
        program.product(x, w, (y, self._y), bias, relu)
        return program

    def _data_program(self) -> Program:
        program = Program(self.backend)
        dy = self._operand(program, (self.y.gradient, self._y))
        w = self._operand(program, (self.w.value, self._w))
        made = self._create("backward_data", self._x, w[1], dy[1], self._hint, None)
        dx: Tensor = self.x.gradient
        if not dx.layout.is_plain:
            dx = program.scratch(self.backend.plain_layout(self.x.shape))
        program.add(made, {"diff_dst": dy, "weights": w, "diff_src": (dx, self._x)})
        if dx is not self.x.gradient:
            program.reorder(dx, self.x.gradient)
        return program

    def _weights_program(self, weights: bool, bias: bool, add_w: bool, add_b: bool) -> Program:
        wanted_bias = self._b if bias else None
        program = Program(self.backend)
        x = self._operand(program, self.source_rows(program, self.x.value))
        dy = self._operand(program, (self.y.gradient, self._y))
        made = self._create("backward_weights", x[1], self._w, wanted_bias, dy[1], self._hint, None)
        arguments: dict[str | int, Any] = {"src": x, "diff_dst": dy}
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


class RowBlocks(InnerProduct):
    """Forward by products of BLOCK rows each, the last filled up with zeros.

    The library picks its kernels and shares out the work by the number of rows, so a row's last
    bits would depend on how many others there are.
    """

    def _forward_program(self, relu: float | None) -> Runnable:
        return _Blocks(self, relu)


class _Blocks:
    """Runs one program on a block of rows after another."""

    def __init__(self, plan: RowBlocks, relu: float | None) -> None:
        backend, library = plan.backend, plan.library
        self._target, (self._count, inputs), outputs = plan.y.value, plan._x.shape, plan._y.shape[1]
        self._gather, self._source = Program(backend), plan.x.value
        if not self._source.layout.is_plain:
            self._source = OneDNNTensor(backend, plan.x.shape)
            self._gather.reorder(plan.x.value, self._source)
        self._x, self._y = (OneDNNTensor(backend, (BLOCK, n)) for n in (inputs, outputs))
        bias = None
        if plan.b is not None:
            bias = plan.b.value, Descriptor.contiguous(library, (1, plan.b.count))
        x, y = ((t, Descriptor.contiguous(library, t.shape)) for t in (self._x, self._y))
        self._product = program = Program(backend)
        w = plan._operand(program, (plan.w.value, plan._w_turned))
        program.product(plan._operand(program, x), w, y, bias, relu)

    def run(self) -> None:
        self._gather.run()
        self._source.sync()
        rows, made = (_matrix(t, self._count) for t in (self._source, self._target))
        x, y = (_matrix(t, BLOCK) for t in (self._x, self._y))
        for start in range(0, self._count, BLOCK):
            part = rows[start : start + BLOCK]
            x[: len(part)], x[len(part) :] = part, 0
            self._x.fresh = NATIVE
            self._product.run()
            made[start : start + BLOCK] = y[: len(part)]
        self._target.fresh = NATIVE


def _matrix(tensor: Tensor, rows: int) -> Array:
    """A plain tensor's own storage as rows."""
    tensor.allocate()
    assert tensor.buffer is not None
    return tensor.buffer[: prod(tensor.shape)].reshape(rows, -1)
