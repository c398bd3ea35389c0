"""ROIPooling: maxima over a grid laid on each region (Fast R-CNN)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend import compiled
from ..backend.blob import Blob
from .base import register_layer
from .checks import forbid_in_place, need_axes
from .regions import RegionLayer, check_regions, clipped, read_regions, rounded


@compiled.jit
def _pool(x: Any, image: Any, rows: Any, columns: Any, y: Any, places: Any) -> None:
    """The first maximum of every bin, and where in its plane it is.

    Channels are the last axis of `x`, so that the inner loop runs over neighbours.
    """
    channels, width = x.shape[3], x.shape[2]
    best = np.empty(channels, x.dtype)
    place = np.empty(channels, np.int32)
    for r in range(y.shape[0]):
        for i in range(y.shape[2]):
            for j in range(y.shape[3]):
                best[:] = (
                    0
                    if rows[r, i, 1] <= rows[r, i, 0] or columns[r, j, 1] <= columns[r, j, 0]
                    else -np.inf
                )
                place[:] = -1
                for h in range(rows[r, i, 0], rows[r, i, 1]):
                    for w in range(columns[r, j, 0], columns[r, j, 1]):
                        pixel, at = x[image[r], h, w], np.int32(h * width + w)
                        for c in range(channels):
                            better = pixel[c] > best[c]
                            best[c] = pixel[c] if better else best[c]
                            place[c] = at if better else place[c]
                for c in range(channels):
                    y[r, c, i, j], places[r, c, i, j] = best[c], place[c]


def _pool_bins(xp: Any, x: Any, image: Any, rows: Any, columns: Any, y: Any, places: Any) -> None:
    """What `_pool` does, bin by bin on any array library."""
    y[...], places[...] = 0, -1
    for r, i, j in np.ndindex(y.shape[0], y.shape[2], y.shape[3]):
        (top, bottom), (left, right) = rows[r, i], columns[r, j]
        if bottom > top and right > left:
            window = x[int(image[r]), :, int(top) : int(bottom), int(left) : int(right)]
            window = window.reshape(len(window), -1)
            at = window.argmax(axis=1)
            h, w = at // (right - left) + top, at % (right - left) + left
            y[r, :, i, j] = xp.take_along_axis(window, at[:, None], axis=1)[:, 0]
            places[r, :, i, j] = h * x.shape[3] + w


@register_layer("ROIPooling")
class ROIPooling(RegionLayer):
    """top (regions x channels x pooled_h x pooled_w) = the largest value of each bin; 0 if empty.

    Bottoms: a feature map, and regions as rows of image, xmin, ymin, xmax, ymax, which
    spatial_scale turns into pixels of the map.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        param = self.param.roi_pooling_param
        if len(param.pooled_size) > 2:
            self.fail(f"pooled_size must be one or two numbers, got {list(param.pooled_size)}")
        size = list(param.pooled_size) or [param.pooled_h, param.pooled_w]
        self._size = (int(size[0]), int(size[-1]))
        if min(self._size) < 1:
            self.fail(f"pooled_h and pooled_w must be at least 1, got {list(self._size)}")
        if not 0 < param.spatial_scale < float("inf"):
            self.fail(f"spatial_scale must be positive, got {param.spatial_scale:g}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        need_axes(self, bottom[0], 4, "num, channels, height, width")
        check_regions(self, bottom[1])
        top[0].reshape(bottom[1].num, bottom[0].shape[1], *self._size)

    def _edges(self, low: Any, high: Any, count: int, limit: int) -> Any:
        """First and last + 1 pixel of each bin of each region along one axis."""
        xp, scale = self.xp, np.float32(self.param.roi_pooling_param.spatial_scale)
        low, high = rounded(xp, low * scale)[:, None], rounded(xp, high * scale)[:, None]
        size = xp.maximum(high - low + 1, 1) / np.float32(count)
        steps = xp.arange(count + 1, dtype=np.float32)
        first, last = xp.floor(steps[:-1] * size) + low, xp.ceil(steps[1:] * size) + low
        return xp.stack([clipped(xp, first, limit), clipped(xp, last, limit)], axis=-1)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x, y = bottom[0].data, top[0].data
        self._image, corners = read_regions(self, bottom[1], len(x))
        xmin, ymin, xmax, ymax = corners.T
        rows = self._edges(ymin, ymax, self._size[0], x.shape[2])
        columns = self._edges(xmin, xmax, self._size[1], x.shape[3])
        self._places = self.xp.empty(y.shape, np.int64)
        if self.xp is np and compiled.available():
            _pool(
                np.ascontiguousarray(x.transpose(0, 2, 3, 1)),
                self._image,
                rows,
                columns,
                y,
                self._places,
            )
        else:
            _pool_bins(self.xp, x, self._image, rows, columns, y, self._places)

    def backward_to_map(self, top: Blob, bottom: Blob) -> None:
        xp, dy, dx = self.xp, top.diff, bottom.diff
        pixels, planes = dx.shape[2] * dx.shape[3], dx.shape[0] * dx.shape[1]
        plane = self._image[:, None] * dx.shape[1] + xp.arange(dx.shape[1])
        cells = plane[:, :, None, None] * pixels + self._places
        cells = xp.where(self._places >= 0, cells, planes * pixels)  # empty bins: one beyond
        sums = xp.bincount(cells.reshape(-1), dy.reshape(-1), planes * pixels + 1)
        dx[...] = sums[:-1].reshape(dx.shape)
