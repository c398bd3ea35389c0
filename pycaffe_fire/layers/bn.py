"""BN: batch normalisation with its own scale and shift, as the forks of PSPNet and SegNet have it.

SegNet's form (told by scale_filler, shift_filler or bn_mode) has two blobs and no moving averages:
it uses the batch's statistics in both phases, or none at all in INFERENCE mode, for which a script
folds the statistics into scale and shift. PSPNet's form has four blobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import schema
from ..backend.blob import Blob
from .base import Neuron, is_train, register_layer
from .checks import need_least_axes
from .moments import CHANNELWISE, by_channel, moments, through_moments

SEGNET_FIELDS = ("scale_filler", "shift_filler", "bn_mode")
SEGNET_EPS = 1e-9  # where the prototxt gives none


@register_layer("BN")
class BN(Neuron):
    """top = scale * (x - mean) / sqrt(variance + eps) + shift, per channel."""

    averages = (2, 3)  # of PSPNet's form

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.bn_param
        need_least_axes(self, bottom[0], 2)
        channels = bottom[0].shape[1]
        if any(param.HasField(field) for field in SEGNET_FIELDS):
            self._statistics = param.bn_mode == schema.BNParameter.LEARN
            self._frozen = False
            self._eps = param.eps if param.HasField("eps") else SEGNET_EPS
            self.add_param((1, channels, 1, 1), param.scale_filler)
            self.add_param((1, channels, 1, 1), param.shift_filler)
            return
        self._statistics = True
        self._frozen = param.frozen or not is_train(self.phase)
        self._eps = param.eps
        variance = schema.FillerParameter(value=1.0 if param.frozen else 0.0)
        fillers = (param.slope_filler, param.bias_filler, schema.FillerParameter(), variance)
        for filler in fillers:
            self.add_param((1, channels), filler)
        while len(self.param.param) < len(self.blobs):
            self.param.param.add()
        for spec in self.param.param[0 if param.frozen else 2 :]:
            spec.lr_mult = spec.decay_mult = 0

    @property
    def repeatable(self) -> bool:
        return self._frozen or len(self.blobs) == 2  # else every pass is let into the averages

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        channels, shape = self.blobs[0].shape[1], bottom[0].shape
        if shape[1:2] != (channels,):
            self.fail(f"has scales for {channels} channels, got a bottom {list(shape)}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = by_channel(bottom[0].data, bottom[0])
        scale, shift = (blob.data.reshape(1, -1, 1) for blob in self.blobs[:2])
        self._deviation: Any = None
        if self._statistics:
            mean, variance = self._moments(x)
            self._deviation = self.xp.sqrt(variance + self._eps)
            x = (x - mean) / self._deviation
        elif top[0] is bottom[0]:
            x = x.copy()
        self._normed = x
        top[0].data[...] = (scale * x + shift).reshape(top[0].shape)

    def _moments(self, x: Any) -> tuple[Any, Any]:
        if self._frozen:
            return tuple(blob.data.reshape(1, -1, 1) for blob in self.blobs[2:])
        found = moments(x, CHANNELWISE)
        momentum = self.param.bn_param.momentum
        for i, new in zip(range(2, len(self.blobs)), found, strict=False):  # SegNet keeps none
            self.remember(i, (1 - momentum) * new.reshape(self.blobs[i].shape), momentum)
        return found

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        dy = by_channel(top[0].diff, top[0])
        scale, shift = self.blobs[:2]
        if self.param_propagate_down[0]:
            products = (dy * self._normed).sum(axis=CHANNELWISE)
            scale.diff[...] += products.reshape(scale.shape)
        if self.param_propagate_down[1]:
            shift.diff[...] += dy.sum(axis=CHANNELWISE).reshape(shift.shape)
        if not propagate_down[0]:
            return
        dy = dy * scale.data.reshape(1, -1, 1)
        if self._statistics and self._frozen:
            dy = dy / self._deviation
        elif self._statistics:
            dy = through_moments(dy, self._normed, self._deviation, CHANNELWISE)
        bottom[0].diff[...] = dy.reshape(bottom[0].shape)
