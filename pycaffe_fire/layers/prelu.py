"""PReLU: ReLU whose negative slope is learned, per channel or once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import schema
from ..blob import Blob
from .base import Neuron, register_layer


def prelu(xp: Any, x: Any, slope: Any) -> Any:
    return xp.where(x > 0, x, slope * x)


def prelu_gradients(xp: Any, x: Any, slope: Any, dy: Any) -> tuple[Any, Any]:
    """The gradient of x, and that of the slope before it is summed to the slope's shape."""
    negative = x <= 0
    return xp.where(negative, slope * dy, dy), xp.where(negative, x * dy, 0)


@register_layer("PReLU")
class PReLU(Neuron):
    """top = max(x, 0) + slope * min(x, 0)."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.prelu_param
        if len(bottom[0].shape) < 2:
            self.fail(f"needs a bottom with at least 2 axes, got {list(bottom[0].shape)}")
        filler = schema.FillerParameter(type="constant", value=0.25)
        if param.HasField("filler"):
            filler = param.filler
        self.add_param(() if param.channel_shared else bottom[0].shape[1:2], filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        shape, slopes = bottom[0].shape, self.blobs[0].shape
        if slopes and shape[1:2] != slopes:
            self.fail(f"has {slopes[0]} slopes, one per channel, got a bottom {list(shape)}")
        self._broadcast = (1, *slopes, *(1 for _ in shape[2:])) if slopes else ()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].data
        self._kept = x.copy() if top[0] is bottom[0] else None
        top[0].data[...] = prelu(self.xp, x, self.blobs[0].data.reshape(self._broadcast))

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        x = bottom[0].data if self._kept is None else self._kept
        slope = self.blobs[0].data.reshape(self._broadcast)
        dx, products = prelu_gradients(self.xp, x, slope, top[0].diff)
        if self.param_propagate_down[0]:
            axes = tuple(i for i in range(products.ndim) if i != 1 or not self._broadcast)
            self.blobs[0].diff[...] += products.sum(axis=axes)
        if propagate_down[0]:
            bottom[0].diff[...] = dx
