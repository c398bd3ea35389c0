"""GroupNorm and LayerNorm: every sample brought to mean 0 and variance 1 by its own statistics.

Neither has weights: as after BatchNorm, a Scale layer learns factors and offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..backend.blob import Blob
from .base import Neuron, register_layer
from .checks import need_least_axes
from .moments import moments, through_moments

ROW = (1,)


class RowNorm(Neuron):
    """top = (x - mean) / sqrt(variance + eps) over each of the rows that a subclass sees."""

    def rows(self, blob: Blob) -> int:
        """How many runs of neighbouring elements have statistics of their own."""
        raise NotImplementedError

    def eps(self) -> float:
        raise NotImplementedError

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if not self.eps() > 0:
            self.fail(f"eps must be positive, got {self.eps():g}")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        super().reshape(bottom, top)
        rows = self.rows(bottom[0])
        self._shape = (rows, bottom[0].count // max(rows, 1))

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].data.reshape(self._shape)
        mean, variance = moments(x, ROW)
        self._deviation = self.xp.sqrt(variance + self.eps())
        self._normed = (x - mean) / self._deviation
        top[0].data[...] = self._normed.reshape(top[0].shape)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            dy: Any = top[0].diff.reshape(self._shape)
            dx = through_moments(dy, self._normed, self._deviation, ROW)
            bottom[0].diff[...] = dx.reshape(bottom[0].shape)


@register_layer("GroupNorm")
class GroupNorm(RowNorm):
    """Statistics of each of group_num groups of neighbouring channels, with all their pixels."""

    def eps(self) -> float:
        return float(self.param.group_norm_param.eps)

    def rows(self, blob: Blob) -> int:
        groups = int(self.param.group_norm_param.group_num)
        need_least_axes(self, blob, 2)
        if groups < 1 or blob.shape[1] % groups:
            self.fail(
                f"group_num {groups} must divide the {blob.shape[1]} channels of "
                f'"{blob.name}" {list(blob.shape)}'
            )
        return blob.shape[0] * groups


@register_layer("LayerNorm")
class LayerNorm(RowNorm):
    """Statistics over all axes from `axis` on."""

    def eps(self) -> float:
        return float(self.param.layer_norm_param.eps)

    def rows(self, blob: Blob) -> int:
        return prod(blob.shape[: self.axis(blob, self.param.layer_norm_param.axis)])
