"""ROIAlign: bilinear averages over a grid laid on each region, nothing rounded (Mask R-CNN)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.blob import Blob
from ..backend.tensor import on_host
from .base import register_layer
from .checks import forbid_in_place, need_axes, need_memory
from .regions import RegionLayer, check_regions, read_regions

BYTES_PER_POINT = 64  # eight arrays of float64 or int64 in `shares`


def shares(low: float, high: float, bins: int, samples: int, size: int) -> NDArray[np.float64]:
    """How much each pixel of an axis counts in each bin: bins x size.

    A bin's value is the mean of `samples` points in it (0: as many as it is pixels long), each
    between two pixels; a point more than a pixel outside counts as 0.
    """
    side = max(high - low, 1.0) / bins
    count = samples if samples > 0 else max(1, int(np.ceil(side)))
    # Regions may be much larger than the map: only points on it take memory.
    first, last = (int((edge - low) / side * count - 0.5) for edge in (-1.0, size))
    first, last = max(0, first - 1), min(bins * count, last + 2)
    numbers = float(first) + np.arange(max(0, last - first))
    points = low + (numbers + 0.5) * side / count
    inside = (points >= -1) & (points <= size)
    points = np.clip(points, 0, size - 1)
    before = np.minimum(points.astype(int), size - 1)
    after, part = np.minimum(before + 1, size - 1), points - before
    sums = np.zeros((bins, size))
    rows = np.minimum(numbers // count, bins - 1).astype(int)
    np.add.at(sums, (rows, before), inside * (1 - part))
    np.add.at(sums, (rows, after), inside * part)
    return sums / count


@register_layer("ROIAlign")
class ROIAlign(RegionLayer):
    """top (regions x channels x pooled_h x pooled_w) = bilinear means over bins of each region.

    Bottoms as ROIPooling has them. sampling_ratio points along each side of a bin (0 or less: one
    per pixel); with roi_end_mode: 1 regions end one pixel later. Means of bilinear points fall
    apart into rows and columns: top = R x C^T with a matrix R and C for each region.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        param = self.param.roi_align_param
        self._size = (int(param.pooled_h), int(param.pooled_w))
        if min(self._size) < 1:
            self.fail(f"pooled_h and pooled_w must be at least 1, got {list(self._size)}")
        if not 0 < param.spatial_scale < float("inf"):
            self.fail(f"spatial_scale must be positive, got {param.spatial_scale:g}")
        if param.roi_end_mode not in (0, 1):
            self.fail(f"roi_end_mode must be 0 or 1, got {param.roi_end_mode}")
        points = max(self._size) * max(0, param.sampling_ratio)
        what = f"sampling_ratio {param.sampling_ratio}"
        need_memory(self, BYTES_PER_POINT * points, what, "2 is usual")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        need_axes(self, bottom[0], 4, "num, channels, height, width")
        check_regions(self, bottom[1])
        top[0].reshape(bottom[1].num, bottom[0].shape[1], *self._size)

    def _matrices(self, rois: Blob, shape: tuple[int, ...]) -> list[tuple[int, Any, Any]]:
        """(image, R, C) of each region."""
        xp, param = self.xp, self.param.roi_align_param
        image, corners = read_regions(self, rois, shape[0])
        made = []
        for number, box in zip(on_host(image), on_host(corners).astype(np.float64), strict=True):
            xmin, ymin = box[:2] * param.spatial_scale
            xmax, ymax = (box[2:] + param.roi_end_mode) * param.spatial_scale
            rows = shares(ymin, ymax, self._size[0], param.sampling_ratio, shape[2])
            columns = shares(xmin, xmax, self._size[1], param.sampling_ratio, shape[3])
            dtype = self.backend.dtype
            both = [xp.asarray(matrix.astype(dtype)) for matrix in (rows, columns)]
            made.append((int(number), both[0], both[1]))
        return made

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, x, y = self.xp, bottom[0].data, top[0].data
        self._regions = self._matrices(bottom[1], bottom[0].shape)
        for region, (image, rows, columns) in enumerate(self._regions):
            y[region] = xp.matmul(xp.matmul(rows, x[image]), columns.T)

    def backward_to_map(self, top: Blob, bottom: Blob) -> None:
        xp, dx, dy = self.xp, bottom.diff, top.diff
        dx[...] = 0
        for region, (image, rows, columns) in enumerate(self._regions):
            dx[image] += xp.matmul(xp.matmul(rows.T, dy[region]), columns)
