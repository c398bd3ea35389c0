"""Accuracy: the share of samples whose label is among the top_k scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backend.blob import Blob
from .base import Layer, register_layer
from .description import Storage
from .labels import Labels, ignore_label


@register_layer("Accuracy")
class Accuracy(Layer):
    """A second top holds the accuracy of each class. Ties count against the label, as in Caffe."""

    storage = Storage.FLOAT32
    compares_labels = True
    family = "score"
    bottoms = (2, 2)
    tops = (1, 2)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.accuracy_param
        axis = self.axis(bottom[0], param.axis)
        self.labels = Labels(self, bottom[0], bottom[1], axis, ignore=ignore_label(param))
        if param.top_k > self.labels.classes:
            self.fail(f"top_k {param.top_k} exceeds the number of classes {self.labels.classes}")
        top[0].reshape()
        if len(top) > 1:
            top[1].reshape(self.labels.classes)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, read, param = self.xp, self.labels, self.param.accuracy_param
        labels, valid = read.read()
        scores = bottom[0].data.reshape(read.outer, read.classes, read.inner)
        own = xp.take_along_axis(scores, labels[:, None, :], axis=1)
        better = (scores >= own).sum(axis=1) - 1  # the label's own score is among them
        right = valid & (better < param.top_k)
        top[0].data[...] = right.sum() / xp.maximum(valid.sum(), 1)
        if len(top) > 1:
            seen = xp.bincount(labels[valid], minlength=read.classes)
            hits = xp.bincount(labels[right], minlength=read.classes)
            top[1].data[...] = xp.where(seen > 0, hits / xp.maximum(seen, 1), 0).astype(np.float32)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        """Accuracy has no gradient."""

    def allow_force_backward(self, bottom_index: int) -> bool:
        return False
