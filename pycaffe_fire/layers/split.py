"""Split: one blob for several readers. The net inserts it by itself."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Layer, register_layer
from .description import Storage


@register_layer("Split")
class Split(Layer):
    """All tops share the bottom's data; its gradient is their sum, made in one pass.

    The first top's gradient is the bottom's own, so the sum needs no copy; not so for a loss,
    whose gradient is its weight and must outlive the pass.
    """

    needs_forward = False
    storage = Storage.MOVED
    pixelwise = True
    tops = (1, None)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0]
        for blob in top:
            blob.value = x.value
            blob.gradient.lay_out(x.value.layout)
        if not self.param.loss_weight:
            top[0].gradient = x.gradient
        self._sum = None if len(top) == 1 else self.backend.add(
            [blob.gradient for blob in top], x.gradient
        )  # fmt: skip

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0] and self._sum is not None:
            self._sum()
