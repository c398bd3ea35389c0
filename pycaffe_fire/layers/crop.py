"""Crop: the first bottom cut to the size of the second."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import Layer, register_layer
from .checks import forbid_in_place
from .coordinates import CoordMap, UndefinedMapException
from .description import Storage


@register_layer("Crop")
class Crop(Layer):
    """top = bottom0 from `offset` on, as large as bottom1 in every axis from `axis` on."""

    needs_forward = False
    storage = Storage.MOVED
    family = "joint"
    bottoms = (2, 2)

    @classmethod
    def coordinates(cls, param: LayerParameter, bottom: int = 0) -> CoordMap:
        if bottom:
            raise UndefinedMapException("Crop takes nothing but the size of its second bottom")
        offset = np.array(list(param.crop_param.offset) or [0])
        return CoordMap(param.crop_param.axis - 1, 1, -offset)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        whole, like = bottom[0].shape, bottom[1].shape
        axis = self.axis(bottom[0], self.param.crop_param.axis)
        offsets = list(self.param.crop_param.offset)
        cut = len(whole) - axis
        if len(offsets) not in (0, 1, cut):
            self.fail(
                f"offset must be given once, or {cut} times (for each axis from {axis} on), got "
                f"{len(offsets)}"
            )
        if len(offsets) < 2:
            offsets = [*offsets, 0][:1] * cut
        if len(like) < len(whole):
            self.fail(
                f"the second bottom must have at least as many axes as the first, got "
                f"{list(like)} and {list(whole)}"
            )
        like = like[: len(whole)]
        for i, (offset, size) in enumerate(zip(offsets, like[axis:], strict=True), axis):
            if offset + size > whole[i]:
                self.fail(
                    f"the crop of axis {i}, {offset} to {offset + size}, does not fit into the "
                    f'{whole[i]} of bottom "{bottom[0].name}" {list(whole)}'
                )
        self._window = (
            *(slice(None) for _ in range(axis)),
            *(slice(o, o + size) for o, size in zip(offsets, like[axis:], strict=True)),
        )
        top[0].reshape(*whole[:axis], *like[axis:])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].data[...] = bottom[0].data[self._window]

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            dx = bottom[0].diff
            dx[...] = 0
            dx[self._window] = top[0].diff
        if propagate_down[1]:  # only its shape was used
            bottom[1].gradient.clear()
