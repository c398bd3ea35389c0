"""Online hard example mining (R-FCN): losses that say what each region costs, and a layer that
lets only the costliest regions of each image be learned from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backend.blob import Blob
from ..backend.plans import LossPlan
from ..backend.tensor import on_host
from .base import Layer, Loss, register_layer
from .checks import forbid_in_place, need_least_axes, need_same_shape
from .description import Storage
from .labels import normalization_mode, normalizer
from .regions import check_regions
from .softmax_loss import SoftmaxWithLoss


@register_layer("SoftmaxWithLossOHEM")
class SoftmaxWithLossOHEM(SoftmaxWithLoss):
    """SoftmaxWithLoss whose third top is the loss of each prediction, shaped as the labels."""

    tops = (1, 3)

    def fast_op(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> LossPlan | None:
        return None if len(top) > 2 else super().fast_op(bottom, top)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        if len(top) > 2:
            top[2].reshape_like(bottom[1])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().forward(bottom, top)
        if len(top) > 2:
            top[2].data[...] = self._losses.reshape(top[2].shape)


@register_layer("SmoothL1LossOHEM")
class SmoothL1LossOHEM(Loss):
    """loss = sum of f(w (x0 - x1)) / normaliser, f(d) = d^2 / 2 where |d| < 1, else |d| - 1/2.

    Bottom 2 is w. Top 1 is the sum over the channels at each place: N x 1 x the rest.
    """

    param_field = "loss_param"
    bottoms = (2, 3)
    tops = (1, 2)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        need_same_shape(self, bottom)
        shape = bottom[0].shape
        need_least_axes(self, bottom[0], 2)
        places = bottom[0].count // max(1, shape[0] * shape[1])
        param = self.param.loss_param
        mode, every = normalization_mode(param), shape[0] * places
        self._divisor = normalizer(mode, shape[0], places, every, param.pre_fixed_normalizer)
        if len(top) > 1:
            top[1].reshape(shape[0], 1, *shape[2:])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, gap = self.xp, bottom[0].data - bottom[1].data
        if len(bottom) > 2:
            gap = gap * bottom[2].data
        near = abs(gap) < 1
        losses = xp.where(near, 0.5 * gap * gap, abs(gap) - 0.5)
        self._slope = xp.where(near, gap, xp.sign(gap))
        if len(bottom) > 2:
            self._slope = self._slope * bottom[2].data
        top[0].data[...] = losses.sum() / self._divisor
        if len(top) > 1:
            top[1].data[...] = losses.sum(axis=1, keepdims=True)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if any(propagate_down[2:]):  # as Caffe, none to the weights
            bottom[2].gradient.clear()
        for blob, down, sign in zip(bottom, propagate_down, (1, -1), strict=False):
            if down:
                blob.diff[...] = self._slope * (sign * top[0].diff / self._divisor)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index < 2


@register_layer("BoxAnnotatorOHEM")
class BoxAnnotatorOHEM(Layer):
    """Tops: labels and box weights as they are for the roi_per_img costliest regions of each
    image; ignore_label and 0 for all others.

    Bottoms: regions (rows of image, xmin, ymin, xmax, ymax), the loss of each, labels, weights.
    """

    storage = Storage.FLOAT32
    stops_gradients = True
    judges = True
    bottoms = (4, 4)
    tops = (2, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        if self.param.box_annotator_ohem_param.roi_per_img < 1:
            self.fail("roi_per_img must be at least 1")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        check_regions(self, bottom[0])
        num = bottom[0].num
        for blob, what in zip(bottom[1:3], ("loss", "label"), strict=True):
            if blob.count != num:
                self.fail(
                    f'needs one {what} for each of {num} regions, got "{blob.name}" '
                    f"{list(blob.shape)}"
                )
        if bottom[3].shape[:1] != (num,):
            self.fail(
                f'needs weights for each of {num} regions, got "{bottom[3].name}" '
                f"{list(bottom[3].shape)}"
            )
        top[0].reshape_like(bottom[2])
        top[1].reshape_like(bottom[3])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.box_annotator_ohem_param
        image = on_host(bottom[0].data).reshape(-1, 5)[:, 0]
        order = np.argsort(-on_host(bottom[1].data).reshape(-1), kind="stable")
        kept = np.zeros(len(image), bool)
        for number in np.unique(image):
            kept[order[image[order] == number][: param.roi_per_img]] = True
        mine = self.xp.asarray(kept)
        for place, other in ((0, param.ignore_label), (1, 0)):
            values = bottom[2 + place].data
            chosen = mine.reshape(-1, *(1 for _ in values.shape[1:]))
            top[place].data[...] = self.xp.where(chosen, values, other)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        """What is chosen has no gradient."""

    def allow_force_backward(self, bottom_index: int) -> bool:
        return False
