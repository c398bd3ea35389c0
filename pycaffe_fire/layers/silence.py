"""Silence: takes blobs nobody else reads, so that they are not outputs of the net."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Layer, register_layer
from .description import Storage


@register_layer("Silence")
class Silence(Layer):
    """No tops; the gradient of every bottom is 0."""

    needs_forward = False
    storage = Storage.FLOAT32
    bottoms = (1, None)
    tops = (0, 0)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        for blob, down in zip(bottom, propagate_down, strict=True):
            if down:
                blob.gradient.clear()
