"""Inner product as one GEMM per direction."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import WeightedPlan
from ..tensor import Array
from .activation import rectify

if TYPE_CHECKING:
    from . import NumPyBackend


class InnerProduct(WeightedPlan):
    """y = relu(x w^T + b) over matrices (rows, inputs) x (outputs, inputs)."""

    def __init__(
        self, backend: NumPyBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int,
        transpose: bool, relu: float | None,
    ) -> None:  # fmt: skip
        self.xp, self.x, self.w, self.b, self.y = backend.xp, x, w, b, y
        self.transpose, self.relu = transpose, relu
        self._rows = prod(x.shape[:axis])
        self._inputs, self._outputs = prod(x.shape[axis:]), prod(y.shape[axis:])
        y.lay_out(backend.plain_layout(y.shape))

    def forward(self, activate: bool = True) -> None:
        x, w, y = self._x(self.x.data), self._w(self.w.data), self._y(self.y.data)

        def multiply(first: int, stop: int) -> None:
            self.xp.matmul(x, w[first:stop].T, out=y[:, first:stop])

        self.share(self._outputs, multiply)
        if self.b is not None:
            y += self.b.data.reshape(-1)
        if activate and self.relu is not None:
            rectify(self.xp, y, self.relu, out=y)

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        dy = self._y(self.y.diff)
        if weights:
            self._add_weights(dy)
        if bias and self.b is not None:
            db = self.b.diff
            db += dy.sum(axis=0).reshape(db.shape)
        if data:
            w, dx = self._w(self.w.data), self._x(self.x.diff)

            def multiply(first: int, stop: int) -> None:
                self.xp.matmul(dy, w[:, first:stop], out=dx[:, first:stop])

            self.share(self._inputs, multiply)

    def _add_weights(self, dy: Array) -> None:
        x, dw = self._x(self.x.data), self._w(self.w.diff)

        def multiply(first: int, stop: int) -> None:
            dw[first:stop] += dy[:, first:stop].T @ x

        self.share(self._outputs, multiply)

    def share(self, count: int, run: Callable[[int, int], None]) -> None:
        """run(first, stop) for parts of 0 .. count, or all at once."""
        run(0, count)

    def _x(self, values: Array) -> Array:
        return values.reshape(self._rows, self._inputs)

    def _y(self, values: Array) -> Array:
        return values.reshape(self._rows, self._outputs)

    def _w(self, values: Array) -> Array:
        """(outputs, inputs), whichever way round the blob has them."""
        if self.transpose:
            return values.reshape(self._inputs, self._outputs).T
        return values.reshape(self._outputs, self._inputs)
