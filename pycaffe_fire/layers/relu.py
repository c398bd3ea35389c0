"""ReLU, also leaky."""

from __future__ import annotations

from collections.abc import Sequence

from ..backend.blob import Blob
from .base import Neuron, register_layer


@register_layer("ReLU")
class ReLU(Neuron):
    """top = max(x, 0) + negative_slope * min(x, 0)."""

    needs_forward = False

    @property
    def relu_slope(self) -> float | None:
        slope: float = self.param.relu_param.negative_slope
        return slope if slope >= 0 else None

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        slope = self.param.relu_param.negative_slope
        self._plan = self.backend.relu(bottom[0], top[0], slope)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._plan.forward()

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            self._plan.backward()
