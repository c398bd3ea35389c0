"""Permute: axes in another order (SSD)."""

from __future__ import annotations

from ..backend.blob import Blob
from .base import register_layer
from .rearrange import Move, Rearrange


@register_layer("Permute")
class Permute(Rearrange):
    """Axis i of the top is axis `order[i]` of the bottom; axes not named follow in their order."""

    def move(self, bottom: Blob) -> Move:
        given, axes = list(self.param.permute_param.order), len(bottom.shape)
        if len(set(given)) != len(given) or any(axis >= axes for axis in given):
            self.fail(
                f"order must name different axes below {axes} (bottom {list(bottom.shape)}), "
                f"got {given}"
            )
        order = (*given, *(axis for axis in range(axes) if axis not in given))
        return Move(bottom.shape, order, tuple(bottom.shape[axis] for axis in order))
