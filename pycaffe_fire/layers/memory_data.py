"""MemoryData: arrays that the program hands over, batch after batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.blob import Blob
from ..schema.proto import LayerParameter
from .base import register_layer
from .data_layer import DataLayer


@register_layer("MemoryData")
class MemoryData(DataLayer):
    """Tops: data and labels given to `set_arrays`, in order and around again."""

    tops = (2, 2)

    @classmethod
    def image_shape(cls, param: LayerParameter) -> list[int]:
        own = param.memory_data_param
        return [own.channels, own.height, own.width]

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        p = self.param.memory_data_param
        self._shape = (p.channels, p.height, p.width)
        if not p.batch_size or not all(self._shape):
            self.fail(
                "memory_data_param needs batch_size, channels, height and width, got "
                f"{p.batch_size}, {p.channels}, {p.height}, {p.width}"
            )
        self._batch = p.batch_size
        self._size = self.leaf_size(p.batch_size)
        self._data: NDArray[np.float32] | None = None
        top[0].reshape(self._size, *self._shape)
        top[1].reshape(self._size)

    def set_arrays(self, data: Any, labels: Any) -> None:
        """Feed these (N, channels, height, width) images and N labels from the next pass on."""
        data, labels = np.asarray(data, np.float32), np.asarray(labels, np.float32)
        if data.shape[1:] != self._shape:
            self.fail(
                f"expects data of shape (N, {', '.join(map(str, self._shape))}), got {data.shape}"
            )
        if labels.size != len(data) or labels.shape[:1] != data.shape[:1]:
            self.fail(f"expects one label per image, {len(data)}, got shape {labels.shape}")
        if not len(data) or len(data) % self._batch:
            self.fail(
                f"the number of images must be a multiple of batch_size {self._batch}, got "
                f"{len(data)}"
            )
        self._data, self._labels = data, labels.reshape(-1)
        self._since = self.context.step

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        if self._data is None:
            self.fail("has no data yet; call set_arrays(data, labels) first")
        ctx = self.context
        at = (ctx.step - self._since) * self._batch + ctx.leaf * self._size
        at %= len(self._data)
        top[0].data[...] = self.xp.asarray(self._data[at : at + self._size])
        top[1].data[...] = self.xp.asarray(self._labels[at : at + self._size])
