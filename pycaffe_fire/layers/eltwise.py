"""Eltwise: the product, weighted sum or maximum of bottoms of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import schema
from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import Layer, register_layer
from .description import Storage


def maximum(xp: Any, arrays: Sequence[Any]) -> tuple[Any, Any]:
    """The largest values and whose they are; of equals Caffe takes the second, then the first."""
    winner = xp.where(arrays[0] > arrays[1], 0, 1)
    best = xp.where(winner == 0, arrays[0], arrays[1])
    for i, array in enumerate(arrays[2:], start=2):
        better = array > best
        winner, best = xp.where(better, i, winner), xp.where(better, array, best)
    return best, winner


@register_layer("Eltwise")
class Eltwise(Layer):
    """top = product, sum of coeff * bottom, or maximum of the bottoms."""

    storage = Storage.ROUNDED
    pixelwise = True
    family = "joint"
    bottoms = (2, None)
    fuses = ("ReLU",)

    @classmethod
    def describe(cls, param: LayerParameter) -> str:
        return str(schema.EltwiseParameter.EltwiseOp.Name(param.eltwise_param.operation))

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.eltwise_param
        self._operation = schema.EltwiseParameter.EltwiseOp.Name(param.operation)
        self._coefficients = list(param.coeff) or [1.0] * len(bottom)
        if len(self._coefficients) != len(bottom):
            self.fail(
                f"needs no coeff or one per bottom ({len(bottom)}), got {len(self._coefficients)}"
            )
        if self._operation == "PROD" and param.coeff:
            self.fail("takes coeff for SUM only")

    @property
    def adds_up(self) -> bool:
        return self._operation == "SUM" and set(self._coefficients) == {1.0}

    @property
    def forgets(self) -> bool:
        return self.adds_up

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if any(blob.shape != bottom[0].shape for blob in bottom):
            names = ", ".join(f"{blob.name} {list(blob.shape)}" for blob in bottom)
            self.fail(f"all bottoms must have one shape, got {names}")
        if top[0] is not bottom[0]:
            top[0].reshape_like(bottom[0])
        if self._operation == "SUM":
            self._sum = self.backend.weighted_sum(
                bottom, top[0], self._coefficients, self.fused_relu
            )

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._operation == "SUM":
            self._sum.forward(self.leads)
            return
        arrays = [blob.data for blob in bottom]
        if self._operation == "MAX":
            result, self._winner = maximum(self.xp, arrays)
        else:
            # In place the first factor is about to be overwritten, but gradients need it.
            self._kept = arrays[0].copy() if top[0] is bottom[0] else None
            result = arrays[0] * arrays[1]
            for array in arrays[2:]:
                result *= array
        if self.leads and self.fused_relu is not None:
            result = self.xp.where(result > 0, result, self.fused_relu * result)
        top[0].data[...] = result

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if self._operation == "SUM":
            self._sum.backward(propagate_down)
            return
        dy = top[0].diff
        for i in reversed(range(len(bottom))):  # in place, the first bottom's gradient is dy itself
            if not propagate_down[i]:
                continue
            if self._operation == "MAX":
                bottom[i].diff[...] = self.xp.where(self._winner == i, dy, 0)
            else:
                bottom[i].diff[...] = dy * self._other_factors(i, top, bottom)

    def _other_factors(self, index: int, top: Sequence[Blob], bottom: Sequence[Blob]) -> Any:
        factors = [blob.data for blob in bottom]
        if self._kept is not None:
            factors[0] = self._kept
        if not self.param.eltwise_param.stable_prod_grad:
            return top[0].data / factors[index]
        product: Any = 1
        for i, factor in enumerate(factors):
            if i != index:
                product = product * factor
        return product
