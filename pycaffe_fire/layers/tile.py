"""Tile: copies side by side along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place
from .description import Storage


@register_layer("Tile")
class Tile(Layer):
    """top = `tiles` copies of the bottom, one after the other along `axis`."""

    needs_forward = False
    storage = Storage.MOVED

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self.param.tile_param.tiles < 1:
            self.fail(f"tiles must be at least 1, got {self.param.tile_param.tiles}")
        forbid_in_place(self, bottom, top)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, shape = self.param.tile_param, bottom[0].shape
        axis = self.axis(bottom[0], param.axis)
        top[0].reshape(*shape[:axis], shape[axis] * param.tiles, *shape[axis + 1 :])
        self._split = (prod(shape[:axis]), param.tiles, prod(shape[axis:]))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        outer, _, inner = self._split
        top[0].data.reshape(self._split)[...] = bottom[0].data.reshape(outer, 1, inner)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            total = top[0].diff.reshape(self._split).sum(axis=1)
            bottom[0].diff[...] = total.reshape(bottom[0].shape)
