"""BatchNorm: normalise every channel by the batch's statistics, or by their moving averages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import schema
from ..backend.base import NormPlan
from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import Neuron, is_train, register_layer

FORKS = {"scale_bias": "NVIDIA", "relu": "Intel"}  # fields that would change the output


@register_layer("BatchNorm")
class BatchNorm(Neuron):
    """top = (x - mean) / sqrt(variance + eps), per channel.

    The blobs hold sums of means and variances that fade by moving_average_fraction, and the sum
    of the weights to divide them by; they are no parameters to learn.
    """

    averages = (0, 1, 2)
    fuses = ("Scale", "ReLU")
    fuses_backward = True

    @classmethod
    def can_fuse(cls, follower: LayerParameter) -> bool:
        if follower.type == "ReLU":
            return bool(follower.relu_param.negative_slope == 0)
        scale = follower.scale_param
        return bool(scale.axis == 1 and scale.num_axes == 1)  # one factor per channel

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.batch_norm_param
        for field, fork in FORKS.items():
            if getattr(param, field):
                self.fail(
                    f"{field} is {fork} Caffe's; put a Scale (with bias_term) or ReLU layer "
                    f"after it instead"
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
        if top[0] is not bottom[0]:
            top[0].lay_out(bottom[0].value.layout)
        self._plans: dict[bool, NormPlan] = {}

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        plan = self._run(bottom, top)
        if not self._use_global:
            samples = bottom[0].count // max(self.blobs[0].count, 1)
            self._remember(plan.mean.array, plan.variance.array, samples)

    def separate(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._plans[True].restore()
        self.leads = False
        self._run(bottom, top)

    def _run(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> NormPlan:
        plan = self._plan_for(bottom, top)
        if self._use_global:
            plan.mean.array[...], plan.variance.array[...] = self._averages()
        plan.forward()
        return plan

    def _plan_for(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> NormPlan:
        """The plan with or without the work of the layers after it; made when first needed,
        because their weights come into being after this layer was reshaped."""
        if self.leads not in self._plans:
            scale, shift = self._fused() if self.leads else (None, None)
            self._plans[self.leads] = self.backend.batch_norm(
                bottom[0], top[0], scale, shift, self.param.batch_norm_param.eps,
                self._use_global, self.leads and self.fused_relu is not None,
            )  # fmt: skip
        return self._plans[self.leads]

    def _fused(self) -> tuple[Blob | None, Blob | None]:
        """The factors and offsets of a Scale layer among the followers."""
        if not self.followers or self.followers[0].type != "Scale":
            return None, None
        return (*self.followers[0].blobs, None)[0], (*self.followers[0].blobs, None)[1]

    def _averages(self) -> tuple[Any, Any]:
        total, variances, weight = (blob.data for blob in self.blobs)
        factor = self.xp.where(weight == 0, 0, 1 / self.xp.where(weight == 0, 1, weight))
        return total * factor, variances * factor

    def _remember(self, mean: Any, variance: Any, samples: int) -> None:
        """Caffe's bookkeeping: old sums fade, the variance is the unbiased one."""
        fraction = self.param.batch_norm_param.moving_average_fraction
        unbiased = samples / (samples - 1) if samples > 1 else 1
        for i, new in enumerate((mean, unbiased * variance, 1)):
            self.remember(i, new, fraction)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        learns = [False, False]
        if self.leads and self.followers and self.followers[0].type == "Scale":
            learns = [*self.followers[0].param_propagate_down, False][:2]
        if propagate_down[0] or any(learns):
            self._plans[self.leads].backward(propagate_down[0], *learns)
