"""A database as a source of ready samples: records by global order, decoded and transformed."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

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
        self.shape = self._sample(0)[2]

    def __len__(self) -> int:
        return len(self._db)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of one sample's data and label."""
        return [self.shape, ()]

    def _sample(self, record: int) -> tuple[NDArray[np.generic], int, tuple[int, int, int]]:
        """Image, label and shape after the transform of one record."""
        where = f"{self._db.path}, record {self._db.key(record).decode(errors='replace')!r}"
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
        images = []
        for i, record in enumerate(self._order.records(samples, len(self._db)).tolist()):
            image, value, shape = self._sample(record)
            if shape != self.shape:
                raise DataError(
                    f"{self._db.path}, record {self._db.key(record).decode(errors='replace')!r}: "
                    f"has shape {shape}, the first record {self.shape}; make all images the same "
                    "size or set crop_size"
                )
            images.append(image)
            if label is not None:
                label[i] = value
        self._transform(images, samples, data)
