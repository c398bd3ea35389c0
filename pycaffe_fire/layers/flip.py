"""Flip: images mirrored left to right, upside down, or both."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Layer, register_layer
from .checks import forbid_in_place, need_axes
from .description import Storage


@register_layer("Flip")
class Flip(Layer):
    """top = x with the columns (flip_width) and rows (flip_height) in reverse."""

    needs_forward = False
    storage = Storage.MOVED

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        param = self.param.flip_param
        self._places = (
            ...,
            slice(None, None, -1 if param.flip_height else 1),
            slice(None, None, -1 if param.flip_width else 1),
        )

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        need_axes(self, bottom[0], 4, "num, channels, height, width")
        top[0].reshape_like(bottom[0])

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].data[...] = bottom[0].data[self._places]

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff[self._places]
