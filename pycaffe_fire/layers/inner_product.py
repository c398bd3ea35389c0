"""InnerProduct: a fully connected layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import Layer, is_train, register_layer
from .description import Storage
from .frozen import After, FrozenOp, OwnWeights, keeping_layout


@register_layer("InnerProduct")
class InnerProduct(Layer):
    """top = bottom weights^T + bias, with the bottom flattened from `axis` on."""

    needs_forward = False
    storage = Storage.ROUNDED
    family = "product"
    fuses = ("ReLU",)

    @classmethod
    def describe(cls, param: LayerParameter) -> str:
        return str(param.inner_product_param.num_output)

    def multiply_adds(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> int:
        return prod(top[0].shape[:-1]) * self.blobs[0].count

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.inner_product_param
        self._axis = self.axis(bottom[0], param.axis)
        self._inputs = prod(bottom[0].shape[self._axis :])
        if param.num_output < 1:
            self.fail("num_output must be at least 1")
        shape = (param.num_output, self._inputs)
        self.add_param(shape[::-1] if param.transpose else shape, param.weight_filler)
        if param.bias_term:
            self.add_param((param.num_output,), param.bias_filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, shape = self.param.inner_product_param, bottom[0].shape
        if prod(shape[self._axis :]) != self._inputs:
            self.fail(
                f"its weights expect {self._inputs} inputs from axis {self._axis} on, got "
                f"{prod(shape[self._axis :])} (bottom {list(shape)})"
            )
        top[0].reshape(*shape[: self._axis], param.num_output)
        with self.backend.per_sample(not is_train(self.phase)):
            self._plan = self.backend.inner_product(
                *self._operands(bottom[0], top[0]), self.fused_relu
            )

    def _operands(self, bottom: Blob, top: Blob) -> tuple[Blob, Blob, Blob | None, Blob, int, bool]:
        bias = self.blobs[1] if len(self.blobs) > 1 else None
        transpose = self.param.inner_product_param.transpose
        return bottom, self.blobs[0], bias, top, self._axis, transpose

    def frozen(
        self, bottom: Blob, top: Blob, after: After, stride: tuple[int, ...] | None = None
    ) -> FrozenOp | None:
        if after.scalings or after.addend is not None:
            return None
        with self.backend.per_sample(not is_train(self.phase)), keeping_layout(top):
            plan = self.backend.packed_inner_product(*self._operands(bottom, top), after.relu)
            return OwnWeights(plan) if plan is not None else None

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._plan.forward(self.leads)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        weights, bias = (*self.param_propagate_down, False)[:2]
        self._plan.backward(propagate_down[0], weights, bias)
