"""Axpy (SENet): scale each channel of one bottom and add another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import Layer, register_layer
from .coordinates import CoordMap, UndefinedMapException
from .description import Storage


@register_layer("Axpy")
class Axpy(Layer):
    """top = a * x + y with one a per sample and channel; bottoms are a, x, y."""

    storage = Storage.ROUNDED
    pixelwise = True
    family = "joint"
    bottoms = (3, 3)

    @classmethod
    def coordinates(cls, param: LayerParameter, bottom: int = 0) -> CoordMap:
        if not bottom:
            raise UndefinedMapException("Axpy's first bottom has one number per channel, no pixels")
        return super().coordinates(param, bottom)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        a, x, y = (blob.shape for blob in bottom)
        if len(x) < 2 or x != y or a[:2] != x[:2] or any(d != 1 for d in a[2:]):
            self.fail(
                f"needs bottoms [N, C, 1, 1], [N, C, ...] and again [N, C, ...], got {list(a)}, "
                f"{list(x)} and {list(y)}"
            )
        if top[0] is bottom[0]:
            self.fail("cannot run in place")
        top[0].reshape_like(bottom[1])

    def _factors(self, bottom: Sequence[Blob]) -> Any:
        return bottom[0].data.reshape(*bottom[0].shape[:2], 1)

    def _rows(self, array: Any) -> Any:
        return array.reshape(*array.shape[:2], -1)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        product = self._factors(bottom) * self._rows(bottom[1].data)
        top[0].data[...] = product.reshape(top[0].shape) + bottom[2].data

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        dy = top[0].diff
        if propagate_down[0]:
            products = self._rows(dy * bottom[1].data).sum(axis=2)
            bottom[0].diff[...] = products.reshape(bottom[0].shape)
        if propagate_down[1]:
            bottom[1].diff[...] = (self._factors(bottom) * self._rows(dy)).reshape(dy.shape)
        if propagate_down[2]:
            bottom[2].diff[...] = dy
