"""ShuffleChannel: channels of different groups in turn (ShuffleNet)."""

from __future__ import annotations

from math import prod

from ..backend.blob import Blob
from .base import register_layer
from .rearrange import Move, Rearrange


@register_layer("ShuffleChannel")
class ShuffleChannel(Rearrange):
    """Channels seen as a (group, channels / group) matrix are written transposed."""

    pixelwise = True

    def move(self, bottom: Blob) -> Move:
        group, shape = self.param.shuffle_channel_param.group, bottom.shape
        if len(shape) < 2:
            self.fail(f"needs a bottom with channels on axis 1, got {list(shape)}")
        if group < 1 or shape[1] % group:
            self.fail(f"group {group} must divide the {shape[1]} channels of the bottom")
        split = (shape[0], group, shape[1] // group, prod(shape[2:]))
        return Move(split, (0, 2, 1, 3), shape)
