"""Inner product: one matrix product per direction."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import WeightedPlan
from ..tensor import Array
from .blas import Matrix
from .channels import Channels
from .tensor import accumulator, optional, source, target

if TYPE_CHECKING:
    from . import CudaBackend


class InnerProduct(WeightedPlan):
    """y = relu(x w^T + b) over matrices (rows, inputs) x (outputs, inputs)."""

    def __init__(
        self, backend: CudaBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int,
        transpose: bool, relu: float | None,
    ) -> None:  # fmt: skip
        self.kernels, self.blas = backend.kernels, backend.blas
        self.x, self.w, self.b, self.y = x, w, b, y
        self.transpose, self.relu = transpose, relu
        self._rows = prod(x.shape[:axis])
        self._inputs, self._outputs = prod(x.shape[axis:]), prod(y.shape[axis:])
        self._bias_sums = Channels(backend, self._rows, self._outputs, 1)

    def forward(self, activate: bool = True) -> None:
        rows, inputs, outputs = self._rows, self._inputs, self._outputs
        kind = self.y.value.kind
        x, y = Matrix(source(self.x.value, kind), inputs), Matrix(target(self.y.value), outputs)
        self.blas.product(x, self._weights(kind, turned=True), y, rows, outputs, inputs)
        relu = activate and self.relu is not None
        if self.b is not None or relu:
            self.kernels["bias_relu", kind](
                y.array.size, optional(self.b), outputs, 1, int(relu), self.relu or 0.0, 0, y.array
            )

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        rows, inputs, outputs = self._rows, self._inputs, self._outputs
        if bias and self.b is not None:
            self._bias_sums.add_sums(self.y.gradient, self.b.gradient)
        if weights:
            self._backward_weights(source(self.y.gradient))
        if data:
            kind = self.x.gradient.kind
            dy = Matrix(source(self.y.gradient, kind), outputs)
            dx = Matrix(target(self.x.gradient), inputs)
            self.blas.product(dy, self._weights(kind, turned=False), dx, rows, inputs, outputs)

    def _backward_weights(self, dy: Array) -> None:
        rows, inputs, outputs = self._rows, self._inputs, self._outputs
        dw, keep = accumulator(self.w.gradient)
        x = source(self.x.value, self.y.gradient.kind)
        if self.transpose:
            left, right = Matrix(x, inputs, turned=True), Matrix(dy, outputs)
            self.blas.product(left, right, Matrix(dw, outputs), inputs, outputs, rows, keep=keep)
        else:
            left, right = Matrix(dy, outputs, turned=True), Matrix(x, inputs)
            self.blas.product(left, right, Matrix(dw, inputs), outputs, inputs, rows, keep=keep)

    def _weights(self, kind: str, turned: bool) -> Matrix:
        """As (outputs, inputs), or turned; the blob may have them the other way round."""
        w = source(self.w.value, kind)
        if self.transpose:
            return Matrix(w, self._outputs, turned=not turned)
        return Matrix(w, self._inputs, turned=turned)
