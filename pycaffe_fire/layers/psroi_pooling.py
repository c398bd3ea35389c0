"""PSROIPooling: averages over a grid laid on each region, a group of channels per bin (R-FCN)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.blob import Blob
from .base import register_layer
from .checks import forbid_in_place, need_axes
from .regions import RegionLayer, check_regions, clipped, read_regions, rounded

MIN_SIDE = 0.1  # pixels of the map; smaller regions are stretched to it


@register_layer("PSROIPooling")
class PSROIPooling(RegionLayer):
    """top[r, c, i, j] = mean of channel (c k + i) k + j over bin (i, j) of region r; 0 if empty.

    k = group_size. Bottoms: a map of output_dim k k channels, and regions as ROIPooling has them.
    Sums over bins come from running sums of the map, so their cost does not grow with the bins.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        param = self.param.psroi_pooling_param
        self._out, self._group = int(param.output_dim), int(param.group_size)
        if min(self._out, self._group) < 1:
            self.fail(
                f"output_dim and group_size must be at least 1, got {self._out} and {self._group}"
            )
        if not 0 < param.spatial_scale < float("inf"):
            self.fail(f"spatial_scale must be positive, got {param.spatial_scale:g}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        need_axes(self, bottom[0], 4, "num, channels, height, width")
        check_regions(self, bottom[1])
        channels, group = bottom[0].shape[1], self._group
        if channels != self._out * group * group:
            self.fail(
                f"needs output_dim x group_size x group_size = {self._out * group * group} "
                f'channels, but "{bottom[0].name}" has {channels}'
            )
        top[0].reshape(bottom[1].num, self._out, group, group)

    def _edges(self, low: Any, high: Any, limit: int) -> tuple[Any, Any]:
        """First and last + 1 pixel of each bin of each region along one axis."""
        xp, scale = self.xp, np.float32(self.param.psroi_pooling_param.spatial_scale)
        low = rounded(xp, low)[:, None] * scale
        high = (rounded(xp, high)[:, None] + np.float32(1)) * scale
        size = xp.maximum(high - low, np.float32(MIN_SIDE)) / np.float32(self._group)
        steps = xp.arange(self._group + 1, dtype=np.float32)
        first, last = xp.floor(steps[:-1] * size + low), xp.ceil(steps[1:] * size + low)
        return clipped(xp, first, limit), clipped(xp, last, limit)

    def _corners(self, rois: Blob, shape: tuple[int, ...]) -> tuple[list[tuple[int, Any]], Any]:
        """Signed cells of the running sums that add up to each bin, and the bins' areas."""
        xp, group = self.xp, self._group
        num, channels, height, width = shape
        image, corners = read_regions(self, rois, num)
        xmin, ymin, xmax, ymax = corners.T
        top, bottom = (e[:, None, :, None] for e in self._edges(ymin, ymax, height))
        left, right = (e[:, None, None, :] for e in self._edges(xmin, xmax, width))
        bottom, right = xp.maximum(bottom, top), xp.maximum(right, left)
        channel = xp.arange(channels).reshape(self._out, group, group)
        plane = image[:, None, None, None] * channels + channel

        def cell(row: Any, column: Any) -> Any:
            return (plane * (height + 1) + row) * (width + 1) + column

        signed = [
            (1, cell(bottom, right)), (-1, cell(top, right)),
            (-1, cell(bottom, left)), (1, cell(top, left)),
        ]  # fmt: skip
        return signed, (bottom - top) * (right - left)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, x = self.xp, bottom[0].data
        self._signed, area = self._corners(bottom[1], x.shape)
        self._weight = xp.where(area > 0, 1 / xp.maximum(area, 1), 0)
        sums = xp.zeros((*x.shape[:2], x.shape[2] + 1, x.shape[3] + 1), np.float64)
        sums[:, :, 1:, 1:] = x.cumsum(axis=2, dtype=np.float64).cumsum(axis=3)
        sums = sums.reshape(-1)
        top[0].data[...] = self._weight * sum(sign * sums[cell] for sign, cell in self._signed)

    def backward_to_map(self, top: Blob, bottom: Blob) -> None:
        xp, dx = self.xp, bottom.diff
        shares = (self._weight * top.diff).reshape(-1)
        padded = (*dx.shape[:2], dx.shape[2] + 1, dx.shape[3] + 1)
        marks = xp.zeros(int(np.prod(padded)), np.float64)
        for sign, cell in self._signed:
            marks += sign * xp.bincount(cell.reshape(-1), weights=shares, minlength=marks.size)
        # A mark counts for every pixel above and left of it: running sums from the far end.
        marks = marks.reshape(padded)[:, :, ::-1, ::-1].cumsum(axis=2).cumsum(axis=3)
        dx[...] = marks[:, :, ::-1, ::-1][:, :, 1:, 1:]
