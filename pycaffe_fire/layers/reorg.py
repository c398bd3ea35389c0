"""Reorg: space to channels and back, with Darknet's order of elements (YOLOv2)."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import register_layer
from .checks import need_axes
from .rearrange import Move, Rearrange


@register_layer("Reorg")
class Reorg(Rearrange):
    """(n, c, h, w) becomes (n, c s^2, h/s, w/s), or with `reverse` (n, c/s^2, h s, w s).

    Darknet reads the bottom of the plain form as if it were (n, c/s^2, h s, w s). Trained weights
    count on that, so the channels must be divisible by s^2 in both directions.
    """

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().setup(bottom, top)
        if self.param.reorg_param.stride < 1:
            self.fail("needs a stride of at least 1")

    def move(self, bottom: Blob) -> Move:
        need_axes(self, bottom, 4, "num, channels, height, width")
        param, (num, channels, height, width) = self.param.reorg_param, bottom.shape
        s = param.stride
        if channels % (s * s):
            self.fail(f"stride {s} squared must divide the {channels} channels of the bottom")
        few = channels // (s * s)
        if param.reverse:
            split = (num, s, s, few, height, width)
            return Move(split, (0, 3, 4, 1, 5, 2), (num, few, height * s, width * s))
        if height % s or width % s:
            self.fail(f"stride {s} must divide height and width of the bottom {list(bottom.shape)}")
        split = (num, few, height, s, width, s)
        return Move(split, (0, 3, 5, 1, 2, 4), (num, channels * s * s, height // s, width // s))
