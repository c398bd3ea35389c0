"""The records of a batch, and the images that the native reader found in them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from .image import decode_rows
from .kernels import JPEG, OTHER, PIXELS, RECORD, SEQUENTIAL_JPEG, SPAN, ReadRecords
from .pixel_limit import max_pixels


class RecordBatch:
    """Records, and for each its label and shape; where it holds no plain image or is left out,
    these do not count, and the general reader is to look at it."""

    def __init__(self, stored: Iterable[bytes | memoryview]) -> None:
        self._stored = [memoryview(each) for each in stored]
        self._spans = np.array([_span(each) for each in self._stored], SPAN)
        self._found = np.zeros(len(self._stored), RECORD)
        ReadRecords(
            threads=1, spans=self._spans.view(np.int64), found=self._found.view(np.int64),
            records=len(self._stored),
        ).run()  # fmt: skip
        self.labels = self._found["label"]
        self.shapes = self._found["shape"]
        self.heights = self.shapes[:, 1]
        self._kinds = self._found["kind"]
        self.is_jpeg = self._kinds >= JPEG
        self.leave_out(self.is_jpeg & (self.heights * self.shapes[:, 2] > max_pixels()))

    def leave_out(self, which: NDArray[np.bool_]) -> None:
        self._kinds[which] = OTHER

    @property
    def has_pixels_of_one_shape(self) -> bool:
        return bool((self._kinds == PIXELS).all() and (self.shapes == self.shapes[0]).all())

    @property
    def addresses(self) -> NDArray[np.int64]:
        """Where the pixels are."""
        addresses: NDArray[np.int64] = self._spans["address"] + self._found["start"]
        return addresses

    def image(self, number: int, rows: int) -> NDArray[np.uint8] | None:
        """An image; of a JPEG perhaps only the first `rows`, and it holds until the same thread
        decodes its next. None where it is left out, or cannot be decoded."""
        kind, start, size, _, shape = self._found[number].tolist()
        if kind == OTHER:
            return None
        data = self._stored[number][start : start + size]
        if kind == PIXELS:
            pixels: NDArray[np.uint8] = np.frombuffer(data, np.uint8).reshape(shape)
            return pixels
        _, height, width = shape.tolist()
        return decode_rows(data, width, height, rows if kind == SEQUENTIAL_JPEG else height)


def _span(stored: memoryview) -> tuple[int, int]:
    address: int = np.frombuffer(stored, np.uint8).__array_interface__["data"][0]
    return address, len(stored)
