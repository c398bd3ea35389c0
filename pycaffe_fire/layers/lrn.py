"""LRN: local response normalisation, across channels or within each."""

from __future__ import annotations

from collections.abc import Sequence

from .. import schema
from ..backend.blob import Blob
from .base import Layer, register_layer
from .description import Storage

LARGEST_REGION = 1023  # a larger one covers whatever there is, at great expense


@register_layer("LRN")
class LRN(Layer):
    """top = x / (k + alpha/n * sum of x^2 over the region)^beta, n = the region's size."""

    storage = Storage.ROUNDED
    pixelwise = True

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self.param.lrn_param.local_size % 2 == 0:
            self.fail(f"local_size must be odd, got {self.param.lrn_param.local_size}")
        if self.param.lrn_param.local_size > LARGEST_REGION:
            self.fail(
                f"local_size must be at most {LARGEST_REGION}, got "
                f"{self.param.lrn_param.local_size}"
            )

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.lrn_param
        if len(bottom[0].shape) != 4:
            self.fail(f"needs a bottom with 4 axes, got {list(bottom[0].shape)}")
        top[0].reshape_like(bottom[0])
        across = param.norm_region == schema.LRNParameter.ACROSS_CHANNELS
        k = param.k if across else 1.0  # Caffe ignores k within channels
        self._plan = self.backend.lrn(
            bottom[0], top[0], param.local_size, param.alpha, param.beta, k, across
        )

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._plan.forward()

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            self._plan.backward()
