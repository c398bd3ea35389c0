"""BatchNorm: normalise every channel by the batch's statistics, or by their moving averages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import schema
from ..backend.blob import Blob
from ..backend.plans import Moments, Norm, NormPlan, RunningMoments
from ..schema.proto import BatchNormParameter, LayerParameter
from .base import Layer, Neuron, is_train, register_layer
from .frozen import PerChannel, values_of
from .joined import ChannelWindow, JoinedOp, Sum
from .synced_statistics import SyncedStatistics


@register_layer("BatchNorm")
class BatchNorm(Neuron):
    """top = (x - mean) / sqrt(variance + eps), per channel.

    The blobs hold sums of means and variances that fade by moving_average_fraction, and the sum
    of the weights to divide them by; they are no parameters to learn. With scale_bias (NVIDIA) or
    use_weight_bias (Intel) two more are: top is multiplied by the first and the second is added.
    With stats_batch_size (Intel) each run of that many samples has statistics of its own. With
    sync the statistics are those of the whole batch, also where it is cut into leaves.
    """

    averages = (0, 1, 2)
    fuses = ("Scale", "ReLU")
    fuses_backward = True
    joins = True

    @classmethod
    def can_fuse(cls, follower: LayerParameter) -> bool:
        if follower.type == "ReLU":
            return bool(follower.relu_param.negative_slope == 0)
        scale = follower.scale_param
        return bool(scale.axis == 1 and scale.num_axes == 1)  # one factor per channel

    @classmethod
    def can_lead(cls, param: LayerParameter) -> bool:
        norm = param.batch_norm_param
        return not (_has_own_scale(norm) or norm.stats_batch_size or norm.sync)

    @classmethod
    def spans_leaves(cls, param: LayerParameter) -> bool:
        norm = param.batch_norm_param
        return bool(norm.sync and not norm.use_global_stats)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.batch_norm_param
        self._gradients_are_seen = True
        self._plans: dict[bool, list[NormPlan]] = {}
        self._use_global = not is_train(self.phase)
        if param.HasField("use_global_stats"):
            self._use_global = param.use_global_stats
        if param.sync and param.stats_batch_size:
            self.fail("sync takes the statistics of a whole batch, stats_batch_size those of parts")
        channels = self._channels(bottom[0])
        for shape in ((channels,), (channels,), (1,)):
            self.add_param(shape, schema.FillerParameter())
        for i in self.averages:
            if i == len(self.param.param):
                self.param.param.add(lr_mult=0)
            elif self.param.param[i].lr_mult != 0:
                self.fail("its statistics are not learned: remove its param entries")
        if _has_own_scale(param):
            first = param.scale_filler if param.HasField("scale_filler") else param.filler
            one = schema.FillerParameter(value=1)
            self.add_param((channels,), first if first.ListFields() else one)
            if param.bias_term:
                self.add_param((channels,), param.bias_filler)

    def _channels(self, blob: Blob) -> int:
        if not blob.shape:
            self.fail(
                f'bottom "{blob.name}" is a single number without axes; give it the shape of a '
                f"batch (an Input takes it from input_param)"
            )
        return 1 if len(blob.shape) == 1 else blob.shape[1]

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        channels = self.blobs[0].count
        if self._channels(bottom[0]) != channels:
            self.fail(
                f"has statistics of {channels} channels, got a bottom {list(bottom[0].shape)}"
            )
        if top[0] is not bottom[0]:
            top[0].lay_out(bottom[0].value.layout)
        if self.passing is not None:
            self.passing.show_passed()
        self._runs = self._make_runs(bottom[0], top[0])
        self._plans = {}
        self._synced = SyncedStatistics(self.context, self.xp, self.param.batch_norm_param.eps)

    @property
    def repeatable(self) -> bool:
        return self._use_global  # else every pass is let into the averages

    def per_channel(self) -> PerChannel | None:
        if not self._use_global:
            return None
        mean, variance = self._averages(*map(values_of, self.blobs[:3]))
        factor = 1 / np.sqrt(variance + self.param.batch_norm_param.eps)
        offset = -mean * factor
        scale, shift = (*map(values_of, self.blobs[3:]), None, None)[:2]
        if scale is not None:
            factor, offset = factor * scale, offset * scale
        return PerChannel(factor, offset if shift is None else offset + shift)

    @property
    def statistics_samples(self) -> int | None:
        """How many samples have statistics in common; None where no batch's are computed."""
        if self._use_global:
            return None
        whole = self._runs[0].x.num
        return whole * self.context.leaves if self.param.batch_norm_param.sync else whole

    @property
    def _sync(self) -> bool:
        """Does this pass take the statistics of all leaves?"""
        ctx, asked = self.context, self.param.batch_norm_param.sync and not self._use_global
        return bool(asked and ctx.leaves > 1 and ctx.lockstep is not None and ctx.lockstep.active)

    def _make_runs(self, x: Blob, y: Blob) -> list[Run]:
        """The batch, or its runs of stats_batch_size samples."""
        size = self.param.batch_norm_param.stats_batch_size
        if not size or self._use_global or x.num <= size:
            return [Run(x, y)]
        if x.num % size:
            self.fail(f"stats_batch_size {size} must divide the batch of {x.num}")
        shape = (size, *x.shape[1:])

        def part(whole: Blob) -> Blob:
            return Blob(self.backend, shape, whole.name)

        return [Run(part(x), part(y), (x, y), start) for start in range(0, x.num, size)]

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._sync:
            y = self._synced.forward(_by_channel(bottom[0].data))
            if len(self.blobs) > 3:
                scale, shift = self._own_scale()
                y = y * scale[:, None] + shift[:, None]
            top[0].data[...] = y.reshape(top[0].shape)
            synced = self._synced
            self._running(synced.count).let_in(synced.mean, synced.variance)
            return
        self._run(remember=not self._use_global)

    def separate(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for plan in self._plans[True]:
            plan.restore()
        self.leads = False
        self.forward_again(bottom, top)

    def forward_again(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._run(remember=False)

    def _run(self, remember: bool) -> None:
        for run, plan in zip(self._runs, self._plans_for(), strict=True):
            run.take_data()
            self._run_plan(run.x, plan, remember)
            run.give_data()

    def _run_plan(self, x: Blob, plan: NormPlan, remember: bool) -> None:
        self.give_averages(plan)
        plan.forward(self._let_in(x) if remember else None)

    def give_averages(self, plan: Moments) -> None:
        """To a plan that takes them for the batch's statistics, if it does."""
        if self._use_global:
            sums = (blob.data for blob in self.blobs[:3])
            plan.mean.array[...], plan.variance.array[...] = self._averages(*sums)

    def running(self, x: Blob) -> RunningMoments | None:
        """What the statistics of a batch are let into, if it has any."""
        return None if self._use_global else self._let_in(x)

    def _let_in(self, x: Blob) -> RunningMoments:
        return self._running(x.count // max(self.blobs[0].count, 1))

    def joined(
        self, bottom: Sequence[Blob], top: Sequence[Blob], after: Sum | ChannelWindow
    ) -> JoinedOp | None:
        if isinstance(after, ChannelWindow):
            return self._with_window(bottom[0], after)
        return self._with_sum(bottom, top, after)

    def with_followers(self, followers: Sequence[Layer]) -> Norm:
        """What it does together with a Scale and a ReLU after it."""
        scale, shift = (*(b for layer in followers for b in layer.blobs), None, None)[:2]
        relu = next((f.relu_slope for f in followers if f.relu_slope is not None), None)
        return Norm(scale, shift, self.param.batch_norm_param.eps, self._use_global, relu)

    def _with_window(self, x: Blob, after: ChannelWindow) -> JoinedOp | None:
        last, convolution = after.norm, after.convolution
        assert isinstance(last, BatchNorm)
        plan = self.backend.norm_window(
            x, self.with_followers(after.followers), convolution.blobs[0], after.window, after.top,
            last.with_followers(after.norm_followers),
        )  # fmt: skip
        if plan is None:
            return None

        def forward() -> None:
            for norm, moments in zip((self, last), plan.moments, strict=True):
                norm.give_averages(moments)
            plan.forward((self.running(x), last.running(after.top)))

        def backward() -> None:
            learns = [
                [*(w for f in followers for w in f.param_propagate_down), False, False][:2]
                for followers in (after.followers, after.norm_followers)
            ]
            plan.backward(learns, convolution.param_propagate_down[0], self._gradients_are_seen)

        return JoinedOp(forward, backward, plan.show, plan.hide)

    def _with_sum(
        self, bottom: Sequence[Blob], top: Sequence[Blob], after: Sum
    ) -> JoinedOp | None:  # fmt: skip
        x, eps = bottom[0], self.param.batch_norm_param.eps
        scale, shift = (*(after.scale.blobs if after.scale else ()), None, None)[:2]
        plan = self.backend.batch_norm_sum(
            x, top[0], scale, shift, eps, self._use_global, after.addend, after.total, after.relu,
            after.readers,
        )  # fmt: skip
        if plan is None:
            return None

        def backward() -> None:
            learns = [*(after.scale.param_propagate_down if after.scale else ()), False, False]
            data, addend = after.wanted
            plan.backward(data, learns[0], learns[1], addend, self._gradients_are_seen)

        def forward() -> None:
            self.give_averages(plan)
            plan.forward(self.running(x))

        return JoinedOp(forward, backward, plan.show, plan.hide)

    def share_gradients(self) -> None:
        self._gradients_are_seen = False

    @property
    def passing(self) -> NormPlan | None:
        plans = self._plans.get(True, [])
        return plans[0] if len(plans) == 1 and plans[0].can_pass else None

    def plan_ahead(self, leads: bool) -> None:
        self.leads = leads
        self._plans_for()
        self.leads = False

    def _plans_for(self) -> list[NormPlan]:
        """Plans with or without the work of the layers after it; made when first needed, because
        their weights come into being after this layer was reshaped."""
        if self.leads not in self._plans:
            scale, shift = self._fused() if self.leads else (*self.blobs[3:], None, None)[:2]
            self._plans[self.leads] = [
                self.backend.batch_norm(
                    run.x, run.y, scale, shift, self.param.batch_norm_param.eps,
                    self._use_global, self.leads and self.fused_relu is not None,
                )
                for run in self._runs
            ]  # fmt: skip
        return self._plans[self.leads]

    def _fused(self) -> tuple[Blob | None, Blob | None]:
        """The factors and offsets of a Scale layer among the followers."""
        if not self.followers or self.followers[0].type != "Scale":
            return None, None
        return (*self.followers[0].blobs, None)[0], (*self.followers[0].blobs, None)[1]

    def _averages(self, total: Any, variances: Any, weight: Any) -> tuple[Any, Any]:
        factor = self.xp.where(weight == 0, 0, 1 / self.xp.where(weight == 0, 1, weight))
        return total * factor, variances * factor

    def _running(self, samples: int) -> RunningMoments:
        """Caffe's bookkeeping: old sums fade, the variance is the unbiased one."""
        fraction = self.param.batch_norm_param.moving_average_fraction
        unbiased = samples / (samples - 1) if samples > 1 else 1
        means, variances, weight = (self.remembering(i, fraction) for i in self.averages)
        return RunningMoments(means, variances, weight, fraction, unbiased)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        learns = [*self.param_propagate_down[3:], False, False][:2]
        if self._sync:
            self._backward_synced(_by_channel(top[0].diff), learns)
            if propagate_down[0]:
                bottom[0].diff[...] = self._dx.reshape(bottom[0].shape)
            return
        if self.leads and self.followers and self.followers[0].type == "Scale":
            learns = [*self.followers[0].param_propagate_down, False][:2]
        if propagate_down[0] or any(learns):
            for run, plan in zip(self._runs, self._plans[self.leads], strict=True):
                run.take_diff()
                plan.backward(propagate_down[0], *learns)
                if propagate_down[0]:
                    run.give_diff()

    def _own_scale(self) -> tuple[Any, Any]:
        scale, *shift = (blob.data for blob in self.blobs[3:])
        return scale, shift[0] if shift else self.xp.zeros_like(scale)

    def _backward_synced(self, dy: Any, learns: Sequence[bool]) -> None:
        """All leaves sum here, also where nothing below learns."""
        for blob, values, learn in zip(
            self.blobs[3:], (dy * self._synced.normal, dy), learns, strict=False
        ):
            if learn:
                blob.diff[...] += values.sum(axis=(0, 2))
        if len(self.blobs) > 3:
            dy = dy * self._own_scale()[0][:, None]
        self._dx = self._synced.backward(dy)


@dataclass
class Run:
    """Samples that are normalised together: the whole batch, or copies of a part of it."""

    x: Blob
    y: Blob
    whole: tuple[Blob, Blob] | None = None
    start: int = 0

    @property
    def _part(self) -> slice:
        return slice(self.start, self.start + self.x.num)

    def take_data(self) -> None:
        if self.whole:
            self.x.data[...] = self.whole[0].data[self._part]

    def give_data(self) -> None:
        if self.whole:
            self.whole[1].data[self._part] = self.y.data

    def take_diff(self) -> None:
        if self.whole:
            self.y.diff[...] = self.whole[1].diff[self._part]

    def give_diff(self) -> None:
        if self.whole:
            self.whole[0].diff[self._part] = self.x.diff


def _by_channel(values: Any) -> Any:
    """(samples, channels, pixels); a blob with one axis is one channel."""
    if values.ndim == 1:
        return values.reshape(-1, 1, 1)
    return values.reshape(values.shape[0], values.shape[1], -1)


def _has_own_scale(param: BatchNormParameter) -> bool:
    """Intel's default is true, but only files that say so have the blobs."""
    given = param.HasField("use_weight_bias") and param.use_weight_bias
    return bool(param.scale_bias or given)
