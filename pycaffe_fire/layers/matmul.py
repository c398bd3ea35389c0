"""MatMul: products of matrices that are both computed by the net (attention)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place
from .description import Storage


@register_layer("MatMul")
class MatMul(Layer):
    """top = a b for the matrices in the last two axes; transpose_a and transpose_b turn them."""

    needs_forward = False
    storage = Storage.ROUNDED
    family = "product"
    param_field = "matmul_param"
    bottoms = (2, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        a, b = bottom[0].shape, bottom[1].shape
        if len(a) < 2 or a[:-2] != b[:-2] or len(a) != len(b):
            self.fail(
                f"needs two bottoms of matrices with the same axes before the last two, got "
                f'"{bottom[0].name}" {list(a)} and "{bottom[1].name}" {list(b)}'
            )
        param = self.param.matmul_param
        rows, inner = reversed(a[-2:]) if param.transpose_a else a[-2:]
        other, columns = reversed(b[-2:]) if param.transpose_b else b[-2:]
        if inner != other:
            self.fail(
                f"cannot multiply {rows} x {inner} by {other} x {columns} "
                f'("{bottom[0].name}" {list(a)}, "{bottom[1].name}" {list(b)})'
            )
        top[0].reshape(*a[:-2], rows, columns)
        self._products = prod(a[:-2]) * rows * inner * columns

    def multiply_adds(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> int:
        return self._products

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        a, b = self._turned(bottom)
        top[0].data[...] = self.xp.matmul(a, b)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        xp, param, dy = self.xp, self.param.matmul_param, top[0].diff
        a, b = self._turned(bottom)
        if propagate_down[0]:
            da = xp.matmul(dy, b.swapaxes(-1, -2))
            bottom[0].diff[...] = da.swapaxes(-1, -2) if param.transpose_a else da
        if propagate_down[1]:
            db = xp.matmul(a.swapaxes(-1, -2), dy)
            bottom[1].diff[...] = db.swapaxes(-1, -2) if param.transpose_b else db

    def _turned(self, bottom: Sequence[Blob]) -> tuple[Any, Any]:
        param = self.param.matmul_param
        a, b = bottom[0].data, bottom[1].data
        return (
            a.swapaxes(-1, -2) if param.transpose_a else a,
            b.swapaxes(-1, -2) if param.transpose_b else b,
        )
