"""Normalize (SSD): divide by the Euclidean norm, then scale what is left."""

from __future__ import annotations

from collections.abc import Sequence

from .. import schema
from ..backend.blob import Blob
from .base import Neuron, register_layer
from .checks import need_least_axes
from .moments import CHANNELWISE, by_channel


@register_layer("Normalize")
class Normalize(Neuron):
    """top = scale * x / sqrt(sum of x^2 + eps), the sum over a sample or the channels of a pixel.

    The gradient takes each channel's own scale into account, also where SSD's does not.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.norm_param
        one = schema.FillerParameter(type="constant", value=1)
        filler = param.scale_filler if param.HasField("scale_filler") else one
        self.add_param(() if param.channel_shared else bottom[0].shape[1:2], filler)
        self._axes = (1, 2) if param.across_spatial else (1,)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        need_least_axes(self, bottom[0], 2)
        super().reshape(bottom, top)
        scales, shape = self.blobs[0].shape, bottom[0].shape
        if scales and scales != shape[1:2]:
            self.fail(f"has {scales[0]} scales, one per channel, got a bottom {list(shape)}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = by_channel(bottom[0].data, bottom[0])
        squares = (x * x).sum(axis=self._axes, keepdims=True)
        self._norm = self.xp.sqrt(squares + self.param.norm_param.eps)
        self._normed = x / self._norm
        scale = self.blobs[0].data.reshape(-1, 1)
        top[0].data[...] = (self._normed * scale).reshape(top[0].shape)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        dy, y = by_channel(top[0].diff, top[0]), self._normed
        scale = self.blobs[0]
        if self.param_propagate_down[0]:
            products = (y * dy).sum(axis=CHANNELWISE)
            scale.diff[...] += products if scale.shape else products.sum()
        if propagate_down[0]:
            dy = dy * scale.data.reshape(-1, 1)
            along = (y * dy).sum(axis=self._axes, keepdims=True)
            bottom[0].diff[...] = ((dy - y * along) / self._norm).reshape(bottom[0].shape)
