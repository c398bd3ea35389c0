"""Interp: bilinear resizing between corner pixels (DeepLab, PSPNet)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place, need_axes, need_memory
from .description import Storage


@register_layer("Interp")
class Interp(Layer):
    """top = the bottom, cropped by negative pads, resized so that corners fall on corners.

    The size comes from shrink_factor and zoom_factor, or height and width, or a second bottom.
    """

    storage = Storage.ROUNDED
    bottoms = (1, 2)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.interp_param
        if max(param.pad_beg, param.pad_end) > 0:
            self.fail(
                f"pad_beg and pad_end can only crop (0 or less), got {param.pad_beg} and "
                f"{param.pad_end}"
            )
        if min(param.shrink_factor, param.zoom_factor) < 1:
            self.fail("shrink_factor and zoom_factor must be at least 1")
        forbid_in_place(self, bottom, top)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob in bottom:
            need_axes(self, blob, 4, "num, channels, height, width")
        param, shape = self.param.interp_param, bottom[0].shape
        into = [size + param.pad_beg + param.pad_end for size in shape[2:]]
        if min(into) < 1:
            self.fail(
                f"pad_beg {param.pad_beg} and pad_end {param.pad_end} leave nothing of the "
                f"bottom {list(shape)}"
            )
        out = self._output_size(into, bottom)
        if min(out) < 1:
            self.fail(f"height and width must be at least 1, got {out}")
        top[0].reshape(*shape[:2], *out)
        # A matrix and four vectors of 8-byte numbers along each axis.
        size = 8 * sum(b * (a + 4) for a, b in zip(into, out, strict=True))
        what = f"resizing {into[0]} x {into[1]} to {out[0]} x {out[1]} pixels"
        need_memory(self, size, what, "make the top smaller")
        self._inside = (..., *(slice(-param.pad_beg, size - param.pad_beg) for size in into))
        self._rows, self._columns = (
            self.xp.asarray(_weights(a, b).astype(self.backend.dtype))
            for a, b in zip(into, out, strict=True)
        )

    def _output_size(self, into: list[int], bottom: Sequence[Blob]) -> list[int]:
        param = self.param.interp_param
        shrinks, zooms = param.HasField("shrink_factor"), param.HasField("zoom_factor")
        sized = param.HasField("height") and param.HasField("width")
        if shrinks != zooms or (shrinks and not sized):
            small = ((size - 1) // param.shrink_factor for size in into)
            return [size * param.zoom_factor + 1 for size in small]
        if sized:
            return [param.height, param.width]
        if len(bottom) == 2:
            return list(bottom[1].shape[2:])
        self.fail("needs shrink_factor, zoom_factor, height and width, or a second bottom")

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        inside = bottom[0].data[self._inside]
        top[0].data[...] = self._rows @ inside @ self._columns.T

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            dx = bottom[0].diff
            dx[...] = 0
            dx[self._inside] = self._rows.T @ top[0].diff @ self._columns
        if len(bottom) > 1 and propagate_down[1]:  # only its shape was used
            bottom[1].gradient.clear()


def _weights(into: int, out: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The matrix (out, into) of linear interpolation along one axis."""
    place = np.arange(out) * ((into - 1) / (out - 1) if out > 1 else 0.0)
    left = np.minimum(place.astype(np.int64), into - 1)
    share = place - left
    weights = np.zeros((out, into))
    weights[np.arange(out), left] = 1 - share
    weights[np.arange(out), np.minimum(left + 1, into - 1)] += share
    return weights
