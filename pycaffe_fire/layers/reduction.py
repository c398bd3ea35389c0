"""Reduction: sums over all axes from one on."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from .. import schema
from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place
from .description import Storage


@register_layer("Reduction")
class Reduction(Layer):
    """top = coeff * SUM, MEAN, ASUM (of |x|) or SUMSQ (of x^2) over the axes from `axis` on."""

    storage = Storage.FLOAT32
    sums_nothing = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        operation = self.param.reduction_param.operation
        self._operation = schema.ReductionParameter.ReductionOp.Name(operation)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, shape = self.param.reduction_param, bottom[0].shape
        axis = self.axis(bottom[0], param.axis)
        top[0].reshape(*shape[:axis])
        self._matrix = (prod(shape[:axis]), prod(shape[axis:]))
        self._coeff = float(param.coeff)
        if self._operation == "MEAN":
            self._coeff /= max(1, self._matrix[1])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].data.reshape(self._matrix)
        if self._operation == "ASUM":
            x = abs(x)
        elif self._operation == "SUMSQ":
            x = x * x
        top[0].data[...] = (x.sum(axis=1) * self._coeff).reshape(top[0].shape)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if not propagate_down[0]:
            return
        dx, dy = bottom[0].diff.reshape(self._matrix), top[0].diff.reshape(-1, 1) * self._coeff
        if self._operation == "ASUM":
            dx[...] = self.xp.sign(bottom[0].data.reshape(self._matrix)) * dy
        elif self._operation == "SUMSQ":
            dx[...] = 2 * bottom[0].data.reshape(self._matrix) * dy
        else:
            dx[...] = dy
