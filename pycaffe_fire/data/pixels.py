"""Samples as bytes, for a device that subtracts the mean, scales and mirrors by itself; or still
encoded, if it decodes them, too."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.plans import DeviceRecords, ImageDecoder
from .image import Jpeg
from .source import Buffers, ImageSource

PLACE = 3  # ints before an image's bytes: top, left, and whether it is mirrored


class PixelSource:
    """An ImageSource whose samples are records of ints: the place of the crop, then the bytes.

    A batch in which a record has floats instead is transformed here: it is told by its shape.
    """

    varying = True  # a batch may be of either kind

    def __init__(self, source: ImageSource, decoder: ImageDecoder | None = None) -> None:
        self._source, self._decoder = source, decoder
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
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:  # fmt: skip
        """The buffers, and a batch cut from them; the first is a DeviceRecords in place of an array
        if there is a decoder."""
        first, label = self._prepared(buffers)
        records = first.host if isinstance(first, DeviceRecords) else first.view(np.int32)
        count, shape = len(samples), self._source.shape
        pixels = records[:, PLACE:].view(np.uint8)[:, : prod(shape)].reshape(count, *shape)
        jpegs, decoded = self._decode(samples)
        try:
            encoded = {row: jpegs[row] for row in decoded}
            self._source.cut(samples, pixels, records[:, :PLACE], label, encoded)
        except TypeError:
            data = allocate((count, *shape))
            self._source.fill(samples, data, label)
            return (first, label), (data, label)
        if decoded:
            first.fill(decoded, shape)
            return (first, label), (first, label)
        return (first, label), (records, label)

    def _prepared(self, buffers: tuple[Any, ...]) -> tuple[Any, NDArray[np.float32]]:
        first, label = buffers
        if self._decoder is not None:
            first = first if isinstance(first, DeviceRecords) else self._decoder.records(first)
            first.wait()
        return first, label

    def _decode(self, samples: range) -> tuple[dict[int, Jpeg], dict[int, Any]]:
        """The samples that are JPEGs, and those of them that the device decodes."""
        if self._decoder is None:
            return {}, {}
        jpegs = self._source.jpegs(samples)
        data, shapes = [it.data for it in jpegs.values()], [it.shape for it in jpegs.values()]
        images = zip(jpegs, self._decoder.decode(data, shapes), strict=True)
        return jpegs, {row: image for row, image in images if image is not None}
