"""PReLU: ReLU whose negative slope is learned, per channel or once."""

from __future__ import annotations

from collections.abc import Sequence

from .. import schema
from ..backend.blob import Blob
from .base import Neuron, register_layer
from .checks import need_least_axes


@register_layer("PReLU")
class PReLU(Neuron):
    """top = max(x, 0) + slope * min(x, 0)."""

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.prelu_param
        filler = schema.FillerParameter(type="constant", value=0.25)
        if param.HasField("filler"):
            filler = param.filler
        self.add_param(() if param.channel_shared else bottom[0].shape[1:2], filler)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        need_least_axes(self, bottom[0], 2)
        super().reshape(bottom, top)
        shape, slopes = bottom[0].shape, self.blobs[0].shape
        if slopes and shape[1:2] != slopes:
            self.fail(f"has {slopes[0]} slopes, one per channel, got a bottom {list(shape)}")
        self._plan = self.backend.prelu(bottom[0], top[0], self.blobs[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._plan.forward()

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        self._plan.backward(propagate_down[0], self.param_propagate_down[0], False)
