"""BatchNorm: normalise every channel by the batch's statistics, or by their moving averages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import schema
from ..blob import Blob
from .base import Neuron, is_train, register_layer
from .moments import CHANNELWISE, by_channel, moments, through_moments

FORKS = {"scale_bias": "NVIDIA", "relu": "Intel"}  # fields that would change the output


@register_layer("BatchNorm")
class BatchNorm(Neuron):
    """top = (x - mean) / sqrt(variance + eps), per channel.

    The blobs hold sums of means and variances that fade by moving_average_fraction, and the sum
    of the weights to divide them by; they are no parameters to learn.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.batch_norm_param
        for field, fork in FORKS.items():
            if getattr(param, field):
                self.fail(
                    f"{field} is {fork} Caffe's; put a Scale (with bias_term) or ReLU layer "
                    f"behind it instead"
                )
        self._use_global = not is_train(self.phase)
        if param.HasField("use_global_stats"):
            self._use_global = param.use_global_stats
        channels = 1 if len(bottom[0].shape) == 1 else bottom[0].shape[1]
        for shape in ((channels,), (channels,), (1,)):
            self.add_param(shape, schema.FillerParameter())
        for i in range(len(self.blobs)):
            if i == len(self.param.param):
                self.param.param.add(lr_mult=0)
            elif self.param.param[i].lr_mult != 0:
                self.fail("its statistics are not learned: remove its param entries")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        channels, shape = self.blobs[0].count, bottom[0].shape
        if (1 if len(shape) == 1 else shape[1]) != channels:
            self.fail(f"has statistics of {channels} channels, got a bottom {list(shape)}")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = by_channel(bottom[0].data, bottom[0])
        if self._use_global:
            mean, variance = self._averages()
        else:
            mean, variance = moments(x, CHANNELWISE)
            self._remember(mean, variance, x.size // max(self.blobs[0].count, 1))
        self._deviation = self.xp.sqrt(variance + self.param.batch_norm_param.eps)
        normed = (x - mean) / self._deviation
        # Layers behind it may run in place, so that the top cannot be relied on in backward.
        self._normed = None if self._use_global else normed
        top[0].data[...] = normed.reshape(top[0].shape)

    def _averages(self) -> tuple[Any, Any]:
        total, variances, weight = (blob.data for blob in self.blobs)
        factor = self.xp.where(weight == 0, 0, 1 / self.xp.where(weight == 0, 1, weight))
        return (total * factor).reshape(1, -1, 1), (variances * factor).reshape(1, -1, 1)

    def _remember(self, mean: Any, variance: Any, samples: int) -> None:
        """Caffe's bookkeeping: old sums fade, the variance is the unbiased one."""
        fraction = self.param.batch_norm_param.moving_average_fraction
        unbiased = samples / (samples - 1) if samples > 1 else 1
        for blob, new in zip(self.blobs, (mean, unbiased * variance, 1), strict=True):
            sums = blob.data
            sums *= fraction
            sums += new if isinstance(new, int) else new.reshape(-1)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if not propagate_down[0]:
            return
        dy = by_channel(top[0].diff, top[0])
        if self._normed is None:
            dx = dy / self._deviation
        else:
            dx = through_moments(dy, self._normed, self._deviation, CHANNELWISE)
        bottom[0].diff[...] = dx.reshape(bottom[0].shape)
