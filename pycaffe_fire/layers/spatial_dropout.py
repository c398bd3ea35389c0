"""SpatialDropout: zero a random share of whole channels while training (ENet)."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import Neuron, is_train, register_layer
from .checks import need_least_axes
from .moments import by_channel


@register_layer("SpatialDropout")
class SpatialDropout(Neuron):
    """top = x / (1 - ratio) for a channel of a sample with probability 1 - ratio, else 0.

    In TEST phase top = x.
    """

    @classmethod
    def describe(cls, param: LayerParameter) -> str:
        return f"{param.spatial_dropout_param.dropout_ratio:g}"

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        ratio = self.param.spatial_dropout_param.dropout_ratio
        if not 0 <= ratio < 1:
            self.fail(f"dropout_ratio must be at least 0 and below 1, got {ratio:g}")
        self._drops = is_train(self.phase) and ratio > 0

    @property
    def repeatable(self) -> bool:
        return not self._drops

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        need_least_axes(self, bottom[0], 2)
        super().reshape(bottom, top)
        if not self._drops:
            top[0].value, top[0].gradient = bottom[0].value, bottom[0].gradient
            return
        shape, ratio = bottom[0].shape[:2], self.param.spatial_dropout_param.dropout_ratio
        ones, self._kept = (Blob(self.backend, shape, f"{self.name} mask") for _ in range(2))
        ones.data[...] = 1
        self._plan = self.backend.dropout(ones, self._kept, ratio, 1 / (1 - ratio))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._drops:
            self._plan.forward(self.draw(bottom[0].num))
            x = by_channel(bottom[0].data, bottom[0]) * self._kept.data[:, :, None]
            top[0].data[...] = x.reshape(top[0].shape)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0] and self._drops:
            dx = by_channel(top[0].diff, top[0]) * self._kept.data[:, :, None]
            bottom[0].diff[...] = dx.reshape(bottom[0].shape)
