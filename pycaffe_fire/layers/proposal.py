"""Proposal: boxes that may hold an object, from what a net says of anchors (Faster R-CNN)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.blob import Blob
from ..backend.tensor import on_host
from .base import Layer, register_layer
from .checks import forbid_in_place, need_axes
from .description import Storage

Boxes = NDArray[np.float32]
RATIOS, SCALES = (0.5, 1.0, 2.0), (8.0, 16.0, 32.0)


def anchor_boxes(base: int, ratios: Sequence[float], scales: Sequence[float]) -> Boxes:
    """Corners of boxes around the first cell: every ratio (height / width) in every scale."""
    centre, made = (base - 1) / 2, []
    for ratio in ratios:
        width = np.round(np.sqrt(base * base / ratio))
        height = np.round(width * ratio)
        for scale in scales:
            half = (np.array([width, height]) * scale - 1) / 2
            made.append([*(centre - half), *(centre + half)])
    return np.array(made, np.float32)


def moved_boxes(boxes: Boxes, deltas: Boxes) -> Boxes:
    """Boxes shifted by shares of their size and stretched by exp, as R-CNN predicts them."""
    sizes = boxes[:, 2:] - boxes[:, :2] + 1
    centres = boxes[:, :2] + sizes / 2 + deltas[:, :2] * sizes
    half = np.exp(deltas[:, 2:]) * sizes / 2
    return np.concatenate([centres - half, centres + half], axis=1).astype(np.float32)


def suppressed(boxes: Boxes, threshold: float, most: int) -> list[int]:
    """The places of the first `most` boxes, best first, that overlap no better one by more than
    the threshold; pixels count whole."""
    areas = (boxes[:, 2:] - boxes[:, :2] + 1).prod(axis=1)
    left, kept = np.arange(len(boxes)), list[int]()
    while len(left) and len(kept) < most:
        best, left = left[0], left[1:]
        kept.append(int(best))
        low = np.maximum(boxes[best, :2], boxes[left, :2])
        high = np.minimum(boxes[best, 2:], boxes[left, 2:])
        common = np.maximum(high - low + 1, 0).prod(axis=1)
        left = left[common / (areas[best] + areas[left] - common) <= threshold]
    return kept


@register_layer("Proposal")
class Proposal(Layer):
    """top 0 = rows of image, xmin, ymin, xmax, ymax, best first; top 1 their scores.

    Bottoms: probabilities (N x 2A x H x W, background first), offsets (N x 4A x H x W) and rows
    of height, width, scale of the images. Boxes are cut at the border; those smaller than min_size
    (times the scale) are left out, then all but the best pre_nms_topn, then what overlaps a better
    one by more than nms_thresh, then all but the best post_nms_topn. An image without any has one,
    itself, with score 0.
    """

    storage = Storage.FLOAT32
    stops_gradients = True
    bottoms = (3, 3)
    tops = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        param = self.param.proposal_param
        ratios, scales = list(param.ratio) or RATIOS, list(param.scale) or SCALES
        if min(*ratios, *scales) <= 0 or min(param.feat_stride, param.base_size) < 1:
            self.fail("ratio, scale, feat_stride and base_size must be positive")
        if min(param.pre_nms_topn, param.post_nms_topn) < 1:
            self.fail(
                f"pre_nms_topn and post_nms_topn must be at least 1, got {param.pre_nms_topn} and "
                f"{param.post_nms_topn}"
            )
        self._anchors = anchor_boxes(param.base_size, ratios, scales)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        scores, offsets, info = bottom
        need_axes(self, scores, 4, "num, 2 x anchors, height, width")
        num, count = scores.shape[0], len(self._anchors)
        wanted = (num, 4 * count, *scores.shape[2:])
        if scores.shape[1] != 2 * count or offsets.shape != wanted:
            self.fail(
                f'needs 2 and 4 channels for each of {count} anchors, got "{scores.name}" '
                f'{list(scores.shape)} and "{offsets.name}" {list(offsets.shape)}'
            )
        if info.shape[:1] != (num,) or info.count != 3 * num:
            self.fail(
                f"needs height, width and scale of each of {num} images, got "
                f'"{info.name}" {list(info.shape)}'
            )
        self._shape(top, num)

    def _shape(self, top: Sequence[Blob], rows: int) -> None:
        for blob, shape in zip(top, ((rows, 5), (rows, 1)), strict=False):
            if blob.shape != shape:
                blob.reshape(*shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        scores, offsets, info = (on_host(blob.data).astype(np.float32) for blob in bottom)
        count = len(self._anchors)
        info = info.reshape(len(scores), 3)
        rows, best = [], []
        for image in range(len(scores)):
            fore = scores[image, count:].transpose(1, 2, 0).reshape(-1)
            deltas = offsets[image].transpose(1, 2, 0).reshape(-1, 4)
            boxes, kept = self._propose(fore, deltas, scores.shape[2:], info[image])
            rows.append(np.insert(boxes, 0, image, axis=1))
            best.append(kept)
        made: list[Any] = [np.concatenate(rows), np.concatenate(best)[:, None]]
        self._shape(top, len(made[0]))
        for blob, values in zip(top, made, strict=False):
            blob.data[...] = self.xp.asarray(values)

    def _propose(
        self, scores: NDArray[np.float32], deltas: Boxes, grid: tuple[int, ...], info: Any
    ) -> tuple[Boxes, NDArray[np.float32]]:
        param, (height, width, scale) = self.param.proposal_param, info
        rows, columns = (np.arange(size) * param.feat_stride for size in grid)
        shifts = np.stack(np.meshgrid(columns, rows), axis=-1).reshape(-1, 1, 2)
        anchors = self._anchors + np.concatenate([shifts, shifts], axis=2)
        boxes = moved_boxes(anchors.reshape(-1, 4).astype(np.float32), deltas)
        limit = np.array([width - 1, height - 1] * 2, np.float32)
        boxes = np.clip(boxes, 0, limit)
        large = (boxes[:, 2:] - boxes[:, :2] + 1 >= param.min_size * scale).all(axis=1)
        boxes, scores = boxes[large], scores[large]
        order = np.argsort(-scores, kind="stable")[: param.pre_nms_topn]
        boxes, scores = boxes[order], scores[order]
        kept = suppressed(boxes, param.nms_thresh, param.post_nms_topn)
        if not kept:
            return np.array([[0, 0, *limit[:2]]], np.float32), np.zeros(1, np.float32)
        return boxes[kept], scores[kept]

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        """Where the proposals are has no gradient, as in Faster R-CNN's approximate training."""

    def allow_force_backward(self, bottom_index: int) -> bool:
        return False
