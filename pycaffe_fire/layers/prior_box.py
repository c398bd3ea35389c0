"""PriorBox: SSD's default boxes around every pixel of a feature map."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place, need_axes
from .description import Storage

SAME_RATIO = 1e-6


@register_layer("PriorBox")
class PriorBox(Layer):
    """top (1 x 2 x 4 per prior) = boxes in units of the image size, then their variances.

    Bottoms: the feature map and the image. For every pixel and min_size: a square of min_size, one
    of sqrt(min_size max_size), and min_size stretched to every aspect ratio. Sizes are whole
    pixels, as in Caffe.
    """

    storage = Storage.FLOAT32
    bottoms = (2, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        param = self.param.prior_box_param
        self._sizes = self._read_sizes(param)
        self._ratios = self._read_ratios(param)
        self._variance = list(param.variance) or [0.1]
        if len(self._variance) not in (1, 4) or min(self._variance) <= 0:
            self.fail(f"variance must be 1 or 4 positive numbers, got {self._variance}")
        self._image = self._pair("img_h", "img_w", "img_size")
        self._step = self._pair("step_h", "step_w", "step")

    def _read_sizes(self, param: Any) -> list[float]:
        """min_size, checked together with max_size."""
        if not param.min_size or min(param.min_size) < 1:
            self.fail(f"needs min_size of at least 1 pixel, got {list(param.min_size) or 'none'}")
        if param.max_size and len(param.max_size) != len(param.min_size):
            self.fail(
                f"max_size must be given once per min_size ({len(param.min_size)}) or not at all, "
                f"got {len(param.max_size)}"
            )
        for low, high in zip(param.min_size, param.max_size, strict=False):
            if high <= low:
                self.fail(f"max_size must be greater than min_size, got {high:g} and {low:g}")
        return list(param.min_size)

    def _read_ratios(self, param: Any) -> list[float]:
        """Aspect ratios besides 1."""
        ratios = [1.0]
        for ratio in param.aspect_ratio:
            if ratio <= 0:
                self.fail(f"aspect_ratio must be positive, got {ratio:g}")
            if all(abs(ratio - known) >= SAME_RATIO for known in ratios):
                ratios += [ratio, 1 / ratio] if param.flip else [ratio]
        return [ratio for ratio in ratios if abs(ratio - 1) >= SAME_RATIO]

    def _pair(self, height: str, width: str, both: str) -> tuple[float, float] | None:
        """(height, width) from two fields or one, if given."""
        param = self.param.prior_box_param
        given = [name for name in (height, width, both) if param.HasField(name)]
        if not given:
            return None
        if given not in ([both], [height, width]):
            self.fail(f"give {both}, or both {height} and {width}; got {' and '.join(given)}")
        pair = [getattr(param, name) for name in (given * 2)[:2]]
        if min(pair) <= 0:
            self.fail(f"{' and '.join(given)} must be positive, got {pair}")
        return pair[0], pair[1]

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob in bottom if self._image is None else bottom[:1]:
            need_axes(self, blob, 4, "num, channels, height, width")
            if not prod(blob.shape[2:]):
                self.fail(f'bottom "{blob.name}" has no pixels: {list(blob.shape)}')
        count = prod(bottom[0].shape[2:]) * len(self._extents())
        top[0].reshape(1, 2, 4 * count)

    def _extents(self) -> list[tuple[float, float]]:
        """(width, height) of each box around a pixel."""
        found = []
        largest = list(self.param.prior_box_param.max_size)
        for i, size in enumerate(int(s) for s in self._sizes):
            found.append((float(size), float(size)))
            if largest:
                middle = sqrt(size * int(largest[i]))
                found.append((middle, middle))
            found += [(size * sqrt(ratio), size / sqrt(ratio)) for ratio in self._ratios]
        return found

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        (rows, columns), image = bottom[0].shape[2:], self._image or bottom[1].shape[2:]
        step = self._step or (image[0] / rows, image[1] / columns)
        offset = self.param.prior_box_param.offset
        boxes = np.empty((rows, columns, len(self._extents()), 4))
        center_y = ((np.arange(rows) + offset) * step[0])[:, None, None]
        center_x = ((np.arange(columns) + offset) * step[1])[None, :, None]
        width, height = np.array(self._extents()).T
        boxes[..., 0] = (center_x - width / 2) / image[1]
        boxes[..., 1] = (center_y - height / 2) / image[0]
        boxes[..., 2] = (center_x + width / 2) / image[1]
        boxes[..., 3] = (center_y + height / 2) / image[0]
        if self.param.prior_box_param.clip:
            boxes = boxes.clip(0, 1)
        out = top[0].data.reshape(2, -1, 4)
        out[0] = self.xp.asarray(boxes.reshape(-1, 4))
        out[1] = self.xp.asarray(self._variance)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        for blob, down in zip(bottom, propagate_down, strict=True):
            if down:  # boxes do not depend on what the map and the image hold
                blob.gradient.clear()

    def allow_force_backward(self, bottom_index: int) -> bool:
        return False
