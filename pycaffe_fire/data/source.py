"""Sources of ready samples: images by global order, decoded and transformed.

A record that the policy lets pass is replaced by the one after it in the source, so what a
sample holds depends on the data alone and not on who reads it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.cpu import library
from ..errors import DataError
from .bad_records import FAIL, BadRecords
from .cache import Cache
from .datum import datum_image, parse_datum
from .db import open_database
from .image import Jpeg, plain_jpeg
from .order import Order
from .record_batch import RecordBatch
from .transformer import Transformer

Floats = NDArray[np.float32]
Buffers = tuple[Floats, ...]
Sample = tuple[NDArray[Any], int]  # an image ready for crop and mean, and its label


class ImageSource(ABC):
    """Numbered images with labels; `fill` may be called by several threads at once.

    `classes` is the number of labels there are, where that is known (see `expect`). All samples
    have the shape of the first, unless `varying` is set.
    """

    varying = False

    def __init__(
        self, transformer: Transformer, order: Order, classes: int = 0, policy: str = FAIL
    ) -> None:
        self.transformer = self._transform = transformer
        self._order = order
        self.expect(classes, ())
        self.bad = BadRecords(policy)
        self._shape: tuple[int, int, int] | None = None
        first = int(order.records(range(1), len(self))[0])
        image, _ = self._sample(first, 0)
        self.has_bytes = image.dtype == np.uint8  # else floats, as far as the first record tells
        channels, height, width = image.shape
        self._shape = transformer.output_shape((channels, height, width), self.where(first))

    def expect(self, classes: int, ignored: Collection[int]) -> None:
        """Labels are 0 to classes - 1, or one of the ignored; any other makes a record bad."""
        self._classes, self._ignored = classes, ignored

    @abstractmethod
    def __len__(self) -> int:
        """How many records there are."""

    @abstractmethod
    def where(self, record: int) -> str:
        """The source and the record's name, for errors."""

    @abstractmethod
    def read(self, record: int) -> Sample:
        """Image and label of one record; valid until the same thread reads the next."""

    def jpeg(self, record: int) -> Jpeg | None:
        """What `read` would decode, where that is a JPEG and nothing else is done to it."""
        return None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one transformed sample."""
        assert self._shape is not None
        return self._shape

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of one sample's data and label."""
        return [self.shape, ()]

    def fill(
        self,
        samples: range,
        data: NDArray[np.float32],
        label: NDArray[np.float32] | None = None,
    ) -> None:
        """Write the samples' images into `data` (N, C, H, W) and their labels into `label` (N)."""
        if label is None:
            label = np.empty(len(samples), np.float32)
        self._transform(self._images(samples, label), samples, data)

    def cut(
        self,
        samples: range,
        pixels: NDArray[np.uint8],
        places: NDArray[np.int32],
        label: NDArray[np.float32],
        encoded: Mapping[int, Jpeg] | None = None,
    ) -> None:
        """The samples cropped only, see Transformer.cut; TypeError: one of them has no bytes. Those
        in `encoded`, some of `jpegs`, are only given their places and labels."""
        images: Iterator[NDArray[Any] | Jpeg] = self._images(samples, label)
        if encoded:
            images = self._images_besides(encoded, samples, label)
        self._transform.cut(images, samples, pixels, places)

    def jpegs(self, samples: range) -> dict[int, Jpeg]:
        """Which of the samples, counted from 0, a device may decode; everything else, and whatever
        is wrong with a record, is left to `cut`."""
        found: dict[int, Jpeg] = {}
        if self._transform.augment:
            return found
        for i, record in enumerate(self._order.records(samples, len(self)).tolist()):
            with suppress(DataError):
                jpeg = self.jpeg(record)
                if jpeg is not None:
                    where = self.where(record)
                    self._check_label(jpeg.label, where)
                    self._check_shape(jpeg.shape, where)
                    found[i] = jpeg
        return found

    def _images_besides(
        self, encoded: Mapping[int, Jpeg], samples: range, label: NDArray[np.float32]
    ) -> Iterator[NDArray[Any] | Jpeg]:
        records = self._order.records(samples, len(self)).tolist()
        for i, pair in enumerate(zip(records, samples, strict=True)):
            if i in encoded:
                label[i] = encoded[i].label
                yield encoded[i]
            else:
                image, label[i] = self._sample(*pair)
                yield image

    def _images(self, samples: range, label: NDArray[np.float32]) -> Iterator[NDArray[Any]]:
        """The images, one by one, ready for crop and mean; their labels go where they belong."""
        records = self._order.records(samples, len(self)).tolist()
        for i, pair in enumerate(zip(records, samples, strict=True)):
            image, label[i] = self._sample(*pair)
            yield image

    def objects(self, record: int, sample: int | None) -> Floats | None:
        """A record's objects (see objects.py) as stored, or as a net sees them in this sample;
        None where records have none."""
        return None

    def look(self, record: int, sample: int) -> tuple[NDArray[Any], int, Floats]:
        """One record as it is stored, its label, and what a net sees of it as this sample (which
        decides where it is cropped and whether it is mirrored); raises if it is bad."""
        stored = self.read(record)[0].copy()
        image, label = self._checked(record, sample)
        channels, height, width = image.shape
        shape = self._transform.output_shape((channels, height, width), self.where(record))
        seen = np.empty((1, *shape), np.float32)
        self._transform([image], range(sample, sample + 1), seen)
        return stored, label, seen[0]

    def fit(
        self, samples: range, buffers: Buffers, allocate: Callable[[tuple[int, ...]], Floats]
    ) -> tuple[Buffers, Buffers]:
        """`fill` for one sample of any shape: the buffers, new ones where they were too small,
        and the arrays cut from them."""  # fmt: skip
        flat, label = buffers[0].reshape(-1), buffers[1]
        record = int(self._order.records(samples, len(self))[0])
        image, label[0] = self._sample(record, samples.start)
        channels, height, width = image.shape
        where = self.where(record)
        shape = (1, *self._transform.output_shape((channels, height, width), where))
        if flat.size < prod(shape):
            flat = allocate((prod(shape),))
        data = flat[: prod(shape)].reshape(shape)
        self._transform([image], samples, data)
        return (flat, label), (data, label)

    def _sample(self, record: int, sample: int) -> Sample:
        count = len(self)
        candidates = ((record + i) % count for i in range(count))
        return self.bad.first_good(candidates, lambda number: self._checked(number, sample))

    def _checked(self, record: int, sample: int) -> Sample:
        where = self.where(record)
        image, label = self.read(record)
        self._check_label(label, where)
        if self._transform.augment:
            image = self._transform.augment(image, sample, where)
        channels, height, width = image.shape
        self._check_shape((channels, height, width), where)
        return image, label

    def _check_label(self, label: int, where: str) -> None:
        known = 0 <= label < self._classes or label in self._ignored
        if self._classes and not known:
            raise DataError(
                f"{where}: has label {label}, outside the {self._classes} classes (0 to "
                f"{self._classes - 1}) there are"
            )

    def _check_shape(self, image: tuple[int, int, int], where: str) -> None:
        shape = self._transform.output_shape(image, where)
        if self._shape is not None and shape != self._shape and not self.varying:
            raise DataError(
                f"{where}: has shape {shape}, the first record {self._shape}; "
                "make all images the same size, set crop_size, or use batch_size: 1"
            )


class DatabaseSource(ImageSource):
    """The records of an LMDB or LevelDB; with a cache they stay in memory once they were read."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        backend: str,
        transformer: Transformer,
        order: Order,
        classes: int = 0,
        policy: str = FAIL,
        cache: Cache[bytes] | None = None,
    ) -> None:
        self._db = open_database(path, backend)
        self._cache = cache
        super().__init__(transformer, order, classes, policy)

    def __len__(self) -> int:
        return len(self._db)

    def where(self, record: int) -> str:
        return f"{self._db.path}, record {self._db.key(record).decode(errors='replace')!r}"

    def _record(self, record: int) -> memoryview | bytes:
        if self._cache is None:
            return self._db.record(record)
        return self._cache.get(record, lambda: bytes(self._db.record(record)))

    def read(self, record: int) -> Sample:
        where, transform = self.where(record), self._transform
        datum = parse_datum(self._record(record), where)
        image = datum_image(datum, where, transform.force_color, transform.force_gray, reuse=True)
        return image, datum.label

    def jpeg(self, record: int) -> Jpeg | None:
        datum = parse_datum(self._record(record), self.where(record))
        color, gray = self._transform.force_color, self._transform.force_gray
        return plain_jpeg(datum.data, datum.label, color, gray) if datum.encoded else None

    def fill(
        self,
        samples: range,
        data: NDArray[np.float32],
        label: NDArray[np.float32] | None = None,
    ) -> None:
        if label is None:
            label = np.empty(len(samples), np.float32)
        batch = self._batch(samples)
        if batch is None or not batch.has_pixels_of_one_shape:
            self._transform(self._images_in(batch, samples, label), samples, data)
            return
        label[:] = batch.labels
        channels, height, width = batch.shapes[0].tolist()
        self._transform.transform_pixels(batch.addresses, (channels, height, width), samples, data)

    def _images(self, samples: range, label: NDArray[np.float32]) -> Iterator[NDArray[Any]]:
        return self._images_in(self._batch(samples), samples, label)

    def _images_in(
        self, batch: RecordBatch | None, samples: range, label: NDArray[np.float32]
    ) -> Iterator[NDArray[Any]]:
        if batch is None:
            yield from super()._images(samples, label)
            return
        label[:] = batch.labels
        rows = self._transform.rows_seen(batch.heights, samples).tolist()
        records = self._order.records(samples, len(self)).tolist()
        for i, pair in enumerate(zip(records, samples, strict=True)):
            image = batch.image(i, rows[i])
            if image is None:
                image, label[i] = self._sample(*pair)
            yield image

    def _batch(self, samples: range) -> RecordBatch | None:
        """The samples' records, where native kernels read them; without those that cannot be used,
        or not without more being done to them."""
        if not library.available() or self._transform.augment:
            return None
        records = self._order.records(samples, len(self)).tolist()
        try:
            batch = RecordBatch(map(self._record, records))
        except DataError:  # one that cannot be read may still be skipped
            return None
        if self._transform.force_gray:
            batch.leave_out(batch.is_jpeg)
        if self._classes:
            batch.leave_out((batch.labels < 0) | (batch.labels >= self._classes))
        for channels, height, width in np.unique(batch.shapes, axis=0).tolist():
            try:
                self._check_shape((channels, height, width), "")
            except DataError:
                batch.leave_out((batch.shapes == (channels, height, width)).all(1))
        return batch
