"""Regions of images (rois), as the pooling layers of Fast R-CNN and R-FCN read them.

Where a region's bins lie is computed in float32 whatever the net computes in: rounding decides
which pixels belong to a bin, and it has to decide as Caffe does.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..backend.blob import Blob
from .base import Layer
from .description import Storage
from .indices import truncated


class RegionLayer(Layer):
    """Bottoms: a feature map, and regions of it, which get no gradient, as in Caffe."""

    storage = Storage.ROUNDED
    family = "pooling"
    bottoms = (2, 2)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[1]:
            bottom[1].gradient.clear()
        if propagate_down[0]:
            self.backward_to_map(top[0], bottom[0])

    def backward_to_map(self, top: Blob, bottom: Blob) -> None:
        """Write the gradient of the feature map."""
        raise NotImplementedError

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index == 0


def check_regions(layer: Layer, rois: Blob) -> None:
    if not rois.shape or prod(rois.shape[1:]) != 5:
        layer.fail(
            f'"{rois.name}" must have rows of 5 (image, xmin, ymin, xmax, ymax), got '
            f"{list(rois.shape)}"
        )


def read_regions(layer: Layer, rois: Blob, images: int) -> tuple[Any, Any]:
    """(image, corners) of every region."""
    rows = rois.data.reshape(-1, 5)
    image = truncated(layer.xp, rows[:, 0])
    wrong = (image < 0) | (image >= images) | ~layer.xp.isfinite(rows).all(axis=1)
    if wrong.any():
        bad = int(layer.xp.nonzero(wrong)[0][0])
        layer.fail(
            f'region {bad} in "{rois.name}" makes no sense: {rows[bad].tolist()} (image, xmin, '
            f"ymin, xmax, ymax); there are images 0 to {images - 1}"
        )
    return image, rows[:, 1:].astype(np.float32)


def rounded(xp: Any, values: Any) -> Any:
    """To the nearest integer, halves away from 0."""
    values = values.astype(np.float64)  # where adding a half is exact
    return (xp.sign(values) * xp.floor(xp.abs(values) + 0.5)).astype(np.float32)


def clipped(xp: Any, values: Any, limit: int) -> Any:
    """As pixel numbers of an axis of this length; NaN, which overflow leaves, as 0."""
    return xp.where(values > 0, xp.minimum(values, limit), 0).astype(np.int64)
