"""Samples as bytes, for a device that subtracts the mean, scales and mirrors by itself."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.typing import NDArray

from .source import Buffers, ImageSource

PLACE = 3  # ints before an image's bytes: top, left, and whether it is mirrored


class PixelSource:
    """An ImageSource whose samples are records of ints: the place of the crop, then the bytes.

    A batch in which a record has floats instead is transformed here: it is told by its shape.
    """

    varying = True  # a batch may be of either kind

    def __init__(self, source: ImageSource) -> None:
        self._source = source
        self._words = PLACE + -(-prod(source.shape) // 4)

    def __len__(self) -> int:
        return len(self._source)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [(self._words,), ()]

    @property
    def fill(self) -> Callable[..., None]:
        return self._source.fill

    def fit(
        self, samples: range, buffers: Buffers,
        allocate: Callable[[tuple[int, ...]], NDArray[np.float32]],
    ) -> tuple[Buffers, tuple[NDArray[np.int32] | NDArray[np.float32], ...]]:  # fmt: skip
        """The buffers, and a batch cut from them."""
        words, label = buffers
        records = words.view(np.int32)
        count, size = len(samples), prod(self._source.shape)
        pixels = records[:, PLACE:].view(np.uint8)[:, :size].reshape(count, *self._source.shape)
        try:
            self._source.cut(samples, pixels, records[:, :PLACE], label)
        except TypeError:
            data = allocate((count, *self._source.shape))
            self._source.fill(samples, data, label)
            return buffers, (data, label)
        return buffers, (records, label)
