"""ContinuationIndicator: says to recurrent layers where sequences begin (CRNN)."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Layer, register_layer
from .description import Storage


@register_layer("ContinuationIndicator")
class ContinuationIndicator(Layer):
    """top (time x batch) = 0 in the first moment, 1 after.

    Its sizes are those of the first two axes of its bottom, or else time_step and batch_size.
    """

    storage = Storage.FLOAT32
    stops_gradients = True
    bottoms = (0, 1)

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        param = self.param.continuation_indicator_param
        shape = bottom[0].shape[:2] if bottom else (param.time_step, param.batch_size)
        if len(shape) < 2 or not bottom and min(shape) < 1:
            self.fail(
                f"needs a bottom of time x batch, or time_step and batch_size; got {list(shape)}"
            )
        top[0].reshape(*shape)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        top[0].data[...] = 1
        top[0].data[:1] = 0

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        """What it says depends on sizes alone."""

    def allow_force_backward(self, bottom_index: int) -> bool:
        return False
