"""Parameter: a learned blob as the top of a layer."""

from __future__ import annotations

from collections.abc import Sequence

from .. import schema
from ..backend.blob import Blob
from .base import Layer, register_layer
from .description import Storage


@register_layer("Parameter")
class Parameter(Layer):
    """top = the weight blob, of the given shape and 0 at first."""

    needs_forward = False
    storage = Storage.FLOAT32
    bottoms = (0, 0)

    def multiply_adds(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> int:
        return 0  # it only copies

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        shape = list(self.param.parameter_param.shape.dim)
        if min(shape, default=1) < 1:
            self.fail(f"all dims of its shape must be at least 1, got {shape}")
        self.add_param(shape, schema.FillerParameter(type="constant", value=0))

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].reshape_like(self.blobs[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].data[...] = self.blobs[0].data

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if self.param_propagate_down[0]:
            weights = self.blobs[0].diff
            weights += top[0].diff
