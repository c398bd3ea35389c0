"""Flatten: several axes as one."""

from __future__ import annotations

from math import prod

from ..backend.blob import Blob
from .base import register_layer
from .rearrange import Move, Rearrange, stay


@register_layer("Flatten")
class Flatten(Rearrange):
    """The axes `axis` to `end_axis` (inclusive) become one axis."""

    def move(self, bottom: Blob) -> Move:
        param, shape = self.param.flatten_param, bottom.shape
        start = self.axis(bottom, param.axis)
        end = self.axis(bottom, param.end_axis, "end_axis")
        if end < start - 1:
            self.fail(f"end_axis {end} lies before axis {start} (bottom {list(shape)})")
        return stay(shape, (*shape[:start], prod(shape[start : end + 1]), *shape[end + 1 :]))
