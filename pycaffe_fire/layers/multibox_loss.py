"""MultiBoxLoss: SSD's loss over the locations and classes of matched priors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.base import Backend
from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import Loss, register_layer
from .boxes import check_predictions, decode, encode, read_priors
from .labels import normalization_mode, normalizer
from .multibox import FIELDS, HARD_EXAMPLE, NONE, Matcher, Truth, object_labels, read_truth
from .sigmoid import sigmoid

SOFTMAX = 0  # MultiBoxLossParameter.ConfLossType
L2 = 0  # MultiBoxLossParameter.LocLossType


class Batch:
    """The losses of one batch and their slopes.

    `loc` is images x priors x location classes x 4, `conf` images x priors x classes. Afterwards
    `matched` holds the (image, location class, prior) of every match and `counted` the (image,
    prior) of everything that has a class loss.
    """

    def __init__(
        self, backend: Backend, param: Any, loc: Any, conf: Any, matcher: Matcher,
        truth: Sequence[Truth],
    ) -> None:  # fmt: skip
        self.backend, self.xp, self.param = backend, backend.xp, param
        self.loc, self.conf, self.matcher = loc, conf, matcher
        xp = self.xp
        self.mining = param.mining_type != NONE
        self._boxes = xp.concatenate([t.boxes for t in truth])
        self._labels = xp.concatenate([t.labels for t in truth])
        self._first = xp.asarray(np.cumsum([0] + [len(t.labels) for t in truth]))
        found = [matcher.matches(t, each) for t, each in zip(truth, loc, strict=True)]
        self._use(xp.stack([index for index, _ in found]))
        negatives = xp.zeros(conf.shape[:2], bool)
        if self.mining:
            negatives = self._mine(truth, [best for _, best in found])
        self.loc_losses, self.loc_slope = self._location_losses()
        self._class_losses(negatives)

    def _use(self, index: Any) -> None:
        """From now on these are the matches: an object or less than 0 for each place."""
        self._index = index
        self.matched = self.xp.nonzero(index >= 0)
        rows = self._first[self.matched[0]] + index[self.matched]
        self.boxes, self.labels = self._boxes[rows], self._labels[rows]
        if self.param.map_object_to_agnostic:
            self.labels[...] = self.param.background_label_id + 1

    def _mine(self, truth: Sequence[Truth], best: list[Any]) -> Any:
        """Keep the hard matches, if only those count; returns the negatives, images x priors."""
        images, _, priors = self.matched
        wanted = self._one_hot(self._classes())
        losses = self._conf_losses(self.conf, wanted)[0]
        if self.param.mining_type == HARD_EXAMPLE:
            losses[images, priors] += self._location_losses()[0].sum(axis=-1)
        negatives = self.xp.zeros(losses.shape, bool)
        for i in range(len(losses)):
            if len(truth[i].labels):  # an image without objects takes no part
                self._index[i, 0], negatives[i] = self.matcher.mine(
                    self._index[i, 0], best[i][0], losses[i], self.loc[i, :, 0]
                )
        self._use(self._index)
        return negatives

    def _location_losses(self) -> tuple[Any, Any]:
        """(loss, slope) of every match and coordinate."""
        xp, param, (images, slots, at) = self.xp, self.param, self.matched
        priors, variances = self.matcher.priors[at], self.matcher.variances[at]
        wanted = encode(xp, param.code_type, priors, variances, self.boxes)
        loc = self.loc[images, at, slots]
        if param.bp_inside:  # coordinates outside the image do not learn
            placed = priors
            if not param.use_prior_for_matching:
                placed = decode(xp, param.code_type, priors, variances, loc)
            loc = xp.where((placed < 0) | (placed > 1), wanted, loc)
        gap = loc - wanted
        if param.encode_variance_in_target:
            gap = gap / self.matcher.prior_variances[at]
        square = gap * gap / 2
        if param.loc_loss_type == L2:
            return square, gap
        size = xp.abs(gap)
        return xp.where(size < 1, square, size - 0.5), xp.where(size < 1, gap, xp.sign(gap))

    def _class_losses(self, negatives: Any) -> None:
        xp, param, (images, _, priors) = self.xp, self.param, self.matched
        counted = negatives.copy() if self.mining else xp.ones(negatives.shape, bool)
        counted[images, priors] = True
        self.counted = xp.nonzero(counted)
        if param.conf_loss_type == SOFTMAX:
            wanted = self._one_hot(self._classes()[self.counted])
        else:  # without mining, Caffe wants no class at all where there is no match
            every = xp.zeros(self.conf.shape, self.conf.dtype)
            if param.background_label_id < every.shape[2]:
                every[..., param.background_label_id] = negatives
            every[images, priors, self.labels] = 1
            wanted = every[self.counted]
        self.conf_losses, self.conf_slope = self._conf_losses(self.conf[self.counted], wanted)

    def _classes(self) -> Any:
        """The class of every prior, images x priors."""
        images, _, priors = self.matched
        classes = self.xp.full(self.conf.shape[:2], self.param.background_label_id)
        classes[images, priors] = self.labels
        return classes

    def _one_hot(self, classes: Any) -> Any:
        hot = classes[..., None] == self.xp.arange(self.conf.shape[2])
        return hot.astype(self.conf.dtype)

    def _conf_losses(self, conf: Any, wanted: Any) -> tuple[Any, Any]:
        """(loss per prior, slope per confidence)."""
        xp = self.xp
        if self.param.conf_loss_type == SOFTMAX:
            if not conf.size:
                return conf.sum(axis=-1), conf
            prob = self.backend.softmax(conf, -1)
            picked = (prob * wanted).sum(axis=-1)
            return -xp.log(xp.maximum(picked, np.finfo(np.float32).tiny)), prob - wanted
        losses = xp.maximum(conf, 0) - conf * wanted + xp.log1p(xp.exp(-xp.abs(conf)))
        return losses.sum(axis=-1), sigmoid(xp, conf) - wanted


@register_layer("MultiBoxLoss")
class MultiBoxLoss(Loss):
    """loss = (loc_weight * location loss of matches + class loss of matches and negatives) / norm.

    Bottoms: locations, confidences, priors, and objects as rows of image, class, instance, box and
    difficult flag. The norm is by default the number of matches.
    """

    also_reads = ("loss_param",)
    bottoms = (4, 4)

    @classmethod
    def object_labels(cls, param: LayerParameter) -> range:
        return object_labels(param.multibox_loss_param)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.multibox_loss_param
        classes, background = param.num_classes, param.background_label_id
        if classes < 1:
            self.fail(f"num_classes must be at least 1, got {classes}")
        mining = param.mining_type != NONE
        if param.HasField("do_neg_mining") and param.do_neg_mining != mining:
            self.fail(
                "do_neg_mining contradicts mining_type, which replaced it; say mining_type: NONE "
                "or mining_type: MAX_NEGATIVE"
            )
        if mining and not param.share_location:
            self.fail("mining needs share_location: true; or say mining_type: NONE")
        if param.mining_type == HARD_EXAMPLE and param.sample_size < 1:
            self.fail(f"sample_size must be at least 1, got {param.sample_size}")
        if param.neg_pos_ratio < 0:
            self.fail(f"neg_pos_ratio must not be negative, got {param.neg_pos_ratio:g}")
        if param.conf_loss_type == SOFTMAX and background >= classes:
            self.fail(f"background_label_id {background} is not one of {classes} classes")
        if param.map_object_to_agnostic and (classes != 2 or background > 0):
            self.fail("map_object_to_agnostic needs num_classes: 2 and background_label_id: 0")
        self._classes = int(classes)
        self._locations = 1 if param.share_location else self._classes
        self._mode = normalization_mode(self.param.loss_param)
        self._parts = list(self.param.propagate_down[:2]) or [True, True]

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._priors = check_predictions(self, bottom, self._locations, self._classes)
        shape = bottom[3].shape
        if len(shape) != 4 or shape[:2] != (1, 1) or shape[3] != FIELDS:
            self.fail(f"its objects must be 1 x 1 x count x {FIELDS}, got {list(shape)}")
        top[0].reshape()

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, num = self.param.multibox_loss_param, bottom[0].num
        matcher = Matcher(self.xp, param, *read_priors(self, bottom[2], param.code_type))
        batch = Batch(
            self.backend,
            param,
            bottom[0].data.reshape(self._loc_shape(bottom)),
            bottom[1].data.reshape(self._conf_shape(bottom)),
            matcher,
            read_truth(self, bottom[3], num, param),
        )
        norm = normalizer(self._mode, num, self._priors, len(batch.matched[0]))
        self._loc_slope = batch.loc_slope * (param.loc_weight / norm)
        self._conf_slope = batch.conf_slope / norm
        self._matched, self._counted = batch.matched, batch.counted
        parts = (param.loc_weight * batch.loc_losses.sum(), batch.conf_losses.sum())
        total = sum(loss for loss, counts in zip(parts, self._parts, strict=True) if counts)
        top[0].data[...] = total / norm

    def _loc_shape(self, bottom: Sequence[Blob]) -> tuple[int, ...]:
        return (bottom[0].num, self._priors, self._locations, 4)

    def _conf_shape(self, bottom: Sequence[Blob]) -> tuple[int, ...]:
        return (bottom[0].num, self._priors, self._classes)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[3]:
            self.fail("cannot backpropagate to its objects (bottom 3)")
        if propagate_down[2]:  # where priors lie is no variable
            bottom[2].gradient.clear()
        if propagate_down[0]:
            diff = bottom[0].diff.reshape(self._loc_shape(bottom))
            diff[...] = 0
            images, slots, priors = self._matched
            diff[images, priors, slots] = self._loc_slope * top[0].diff
        if propagate_down[1]:
            diff = bottom[1].diff.reshape(self._conf_shape(bottom))
            diff[...] = 0
            diff[self._counted] = self._conf_slope * top[0].diff

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index < 2
