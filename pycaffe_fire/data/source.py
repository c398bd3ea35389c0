"""A database as a source of ready samples: records by global order, decoded and transformed."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pycaffe_fire.backend import compiled
from pycaffe_fire.data.datum import datum_image, parse_datum
from pycaffe_fire.data.db import open_database
from pycaffe_fire.data.order import Order
from pycaffe_fire.data.transformer import Transformer
from pycaffe_fire.errors import DataError


class DatabaseSource:
    """Samples of a Data layer; `fill` may be called by several threads at once."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        backend: str,
        transformer: Transformer,
        order: Order,
    ) -> None:
        self._db = open_database(path, backend)
        self._transform = transformer
        self._order = order
        first, _, self.shape = self._sample(0)
        self._record_shape = first.shape

    def __len__(self) -> int:
        return len(self._db)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of one sample's data and label."""
        return [self.shape, ()]

    def _where(self, record: int) -> str:
        return f"{self._db.path}, record {self._db.key(record).decode(errors='replace')!r}"

    def _sample(self, record: int) -> tuple[NDArray[Any], int, tuple[int, int, int]]:
        """Image, label and shape after the transform of one record."""
        where = self._where(record)
        datum = parse_datum(self._db.record(record), where)
        transform = self._transform
        image = datum_image(datum, where, transform.force_color, transform.force_gray)
        channels, height, width = image.shape
        return image, datum.label, transform.output_shape((channels, height, width), where)

    def fill(
        self,
        samples: range,
        data: NDArray[np.float32],
        label: NDArray[np.float32] | None = None,
    ) -> None:
        """Write the samples' images into `data` (N, C, H, W) and their labels into `label` (N)."""
        if label is None:
            label = np.empty(len(samples), np.float32)
        records = self._order.records(samples, len(self._db)).tolist()
        if compiled.numba is None or not self._fill_plain(records, samples, data, label):
            self._fill_any(records, samples, data, label)

    def _fill_plain(
        self,
        records: list[int],
        samples: range,
        data: NDArray[np.float32],
        label: NDArray[np.float32],
    ) -> bool:
        """The common case, a batch of raw uint8 images of one shape; False if it is not that."""
        kernels = importlib.import_module("pycaffe_fire.data.kernels")
        buffers = [np.frombuffer(self._db.record(record), np.uint8) for record in records]
        spans = [(b.__array_interface__["data"][0], len(b)) for b in buffers]
        addresses = np.empty(len(records), np.int64)
        if not kernels.find_pixels(np.array(spans, np.int64), self._record_shape, addresses, label):
            return False
        self._transform.transform_pixels(addresses, self._record_shape, samples, data)
        return True

    def _fill_any(
        self,
        records: list[int],
        samples: range,
        data: NDArray[np.float32],
        label: NDArray[np.float32],
    ) -> None:
        images = []
        for i, record in enumerate(records):
            image, label[i], shape = self._sample(record)
            if shape != self.shape:
                raise DataError(
                    f"{self._where(record)}: has shape {shape}, the first record {self.shape}; "
                    "make all images the same size or set crop_size"
                )
            images.append(image)
        self._transform(images, samples, data)
