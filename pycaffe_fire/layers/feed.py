"""What data layers share: a prefetching loader whose buffers become the tops without a copy."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from typing import Any, ClassVar, cast

import numpy as np

from ..backend import available_cores
from ..backend.blob import Blob
from ..backend.plans import ImageTransform
from ..backend.random import key
from ..data.cache import Cache
from ..data.loader import Loader, Source, filler
from ..data.order import (
    Order,
    SequentialOrder,
    ShuffledOrder,
    leaf_schedule,
    skip_offset,
    visits,
)
from ..data.pixels import PixelSource
from ..data.source import ImageSource
from ..data.transformer import Transformer
from ..errors import DataError
from ..schema.proto import BatchSampler
from .base import Count, is_train
from .checks import need_memory
from .data_layer import DataLayer

LOADER_THREADS = 2
DEPTH = 3  # batches ahead, where the prototxt does not say


class Feed(DataLayer):
    """Base of data layers: `start` a loader in setup, and `forward` follows the context."""

    tops: ClassVar[Count] = (1, None)

    def transformer(self, samplers: Sequence[BatchSampler] | None = None) -> Transformer:
        """What transform_param asks for; `samplers` are given if the images have objects."""
        try:
            return Transformer(
                self.param.transform_param,
                is_train(self.phase),
                key(self.context.seed, f"transform {self.name}"),
                samplers=samplers,
            )
        except DataError as error:
            self.fail(str(error))

    def cache(self, source: str, wanted: bool) -> Cache[Any] | None:
        """Where records of the source stay in memory; ranks of one host share what is free."""
        return Cache(source, processes=self.context.host_ranks) if wanted else None

    def order(self, rand_skip: int, shuffle: bool) -> Order:
        """The global order of samples: as the source has them, or a new one every epoch."""
        seed = self.context.seed
        if shuffle:
            return ShuffledOrder(key(seed, f"shuffle {self.name}"))
        return SequentialOrder(skip_offset(seed, f"skip {self.name}", rand_skip))

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Data errors inside name this layer."""
        try:
            yield
        except DataError as error:
            raise DataError(f'layer "{self.name}" ({self.type}): {error}') from error

    def start(self, source: Source, batch_size: int, depth: int, top: Sequence[Blob]) -> None:
        """Shape the tops for one leaf of a global batch and prepare to feed them."""
        ctx = self.context
        if batch_size < 1:
            self.fail(f"batch_size must be at least 1, got {batch_size}")
        size = ctx.images = self.leaf_size(batch_size)
        if batch_size == 1 and isinstance(source, ImageSource):
            source.varying = True  # every pass may have an image of another size, as in Caffe
        self.records = len(source)
        shapes = list(source.shapes)[: len(top)]
        for blob, shape in zip(top, shapes, strict=True):
            blob.reshape(size, *shape)
        schedule = leaf_schedule(batch_size, ctx.leaves, ctx.own_leaves, ctx.iter_size)
        threads = min(LOADER_THREADS, available_cores())
        buffers = max(depth, threads) + 1
        need_memory(
            self, 4 * buffers * size * sum(map(prod, source.shapes)),
            f"reading {buffers:,} batches of {size:,} samples ahead",
            "lower batch_size or prefetch",
        )  # fmt: skip
        self._source = source
        self._transform = self._device_transform(source)
        read = source
        if self._transform is not None:
            read = PixelSource(cast(ImageSource, source), self.backend.image_decoder())
        self._loader = Loader(read, schedule, size, depth, threads, self.backend.host_buffer)
        self._visits = visits(0, ctx.own_leaves, ctx.iter_size)

    def _device_transform(self, source: Source) -> ImageTransform | None:
        """What mirrors, subtracts the mean and scales on a device that is given bytes: of images
        with one label each."""
        if not isinstance(source, ImageSource) or source.varying or not source.has_bytes:
            return None
        if list(source.shapes) != [source.shape, ()]:
            return None
        transformer = source.transformer
        mean = transformer.mean_for(source.shape)
        return self.backend.image_transform(mean, float(transformer.scale))

    def expect_labels(self, classes: int, ignored: Collection[int]) -> None:
        """The net above knows the labels 0 to classes - 1 and ignores others: a record with any
        other is named, or skipped, before it gets there."""
        told = self.param.transform_param.num_labels  # an explicit number counts more
        if isinstance(self._source, ImageSource) and not told:
            self._source.expect(classes, ignored)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        ctx = self.context
        if next(self._visits) != (ctx.step, ctx.leaf):
            self._loader.seek(ctx.step)
            self._visits = visits(ctx.step, ctx.own_leaves, ctx.iter_size)
            next(self._visits)
        self.backend.finish_uploads()  # the loader is about to refill the last batch's arrays
        with self.naming():
            batch = self._loader.next()
        for blob, array in zip(top, batch.arrays, strict=False):
            if self._transform is not None and array.dtype == np.int32:
                self._transform(array, blob.value)
                continue
            if blob.shape != array.shape:
                blob.reshape(*array.shape)
            self.backend.upload(blob.value, array)

    def fingerprint(self) -> str:
        """What tells this data from other data, without reading all of it: how many records there
        are, and what comes first, in the middle and last."""
        found = hashlib.sha256()
        fill = filler(self._source, lambda shape: np.empty(shape, np.float32))
        buffers = tuple(np.zeros((1, *shape), np.float32) for shape in self._source.shapes)
        for sample in (0, self.records // 2, self.records - 1):
            with suppress(DataError):  # reported when the record is really read
                _, buffers, arrays = fill(range(sample, sample + 1), buffers)
                for array in arrays:
                    found.update(array.tobytes())
        return f"{self.name}: {self.records} records, {found.hexdigest()}"

    @property
    def source(self) -> Source:
        """What the loader reads."""
        return self._source

    @property
    def wait_seconds(self) -> float:
        """Time spent waiting for data since the start."""
        return self._loader.wait_seconds

    @property
    def skipped(self) -> int:
        """How many records could not be used and were skipped (see data.bad_records)."""
        return len(getattr(self._source, "bad", ()))

    def close(self) -> None:
        if hasattr(self, "_loader"):
            self._loader.close()
            decoder = self.backend.image_decoder()
            if decoder is not None:
                decoder.finish()
