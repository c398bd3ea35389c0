"""ArgMax: where the largest scores are, and what they are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..backend.blob import Blob
from .base import Layer, register_layer
from .description import Storage


@register_layer("ArgMax")
class ArgMax(Layer):
    """The `top_k` largest along `axis`, or of each whole sample; of equals the last comes first.

    With `axis` the top holds indices, or values if `out_max_val`. Without, its axis 2 holds the
    indices, and `out_max_val` adds the values as a second channel.
    """

    storage = Storage.FLOAT32
    family = "score"

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param, shape = self.param.argmax_param, list(bottom[0].shape)
        if not shape:
            self.fail("its bottom is a single number")
        self._by_axis = param.HasField("axis")
        self._axis = self.axis(bottom[0], param.axis) if self._by_axis else 1
        self._size = shape[self._axis] if self._by_axis else prod(shape[1:])
        if not 1 <= param.top_k <= self._size:
            self.fail(f"top_k must be 1 to {self._size} (bottom {shape}), got {param.top_k}")
        if self._by_axis:
            shape[self._axis] = param.top_k
            top[0].reshape(*shape)
        else:
            rest = [1] * (len(shape) - 3)
            top[0].reshape(shape[0], 1 + param.out_max_val, param.top_k, *rest)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        xp, param, x = self.xp, self.param.argmax_param, bottom[0].data
        if not self._by_axis:
            x = x.reshape(x.shape[0], self._size)
        places = self._largest(x, param.top_k)
        values = xp.take_along_axis(x, places, axis=self._axis) if param.out_max_val else None
        if self._by_axis:
            top[0].data[...] = places if values is None else values
        else:
            y = top[0].data.reshape(x.shape[0], 1 + param.out_max_val, param.top_k)
            y[:, 0] = places
            if values is not None:
                y[:, 1] = values

    def _largest(self, x: Any, top_k: int) -> Any:
        """Indices along the axis, best first. Turned round, the last of equals is the first."""
        turned = self.xp.flip(x, self._axis)
        if top_k == 1:
            found = self.xp.expand_dims(turned.argmax(axis=self._axis), self._axis)
        else:
            order = self.xp.argsort(-turned, axis=self._axis, kind="stable")
            found = self.xp.take(order, self.xp.arange(top_k), axis=self._axis)
        return self._size - 1 - found

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            self.fail("has no gradient; set propagate_down: false")

    def allow_force_backward(self, bottom_index: int) -> bool:
        return False
