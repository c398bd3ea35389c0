"""The images of a database of AnnotatedDatum records, with their objects in one array per batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..errors import DataError
from ..schema.proto import ResizeParameter
from .annotation import Annotated, parse_annotated
from .bad_records import FAIL
from .cache import Cache
from .datum import datum_image
from .objects import BOX, Floats, Scene, mirrored, through_window
from .order import Order
from .source import Buffers, DatabaseSource, Sample
from .transformer import Transformer

FIELDS = 8  # of an object in a batch: its image, and its row


class AnnotatedSource(DatabaseSource):
    """Samples are images of one shape, unless each is a batch of its own (`one_by_one`).

    The second array of a batch is 1 x 1 x objects x 8: the number of the image in the batch,
    label, instance, box, difficult; one row of -1 where there are no objects. With `boxes` false
    it is the Datums' own labels, N x 1 x 1 x 1.
    """

    varying = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        backend: str,
        transformer: Transformer,
        order: Order,
        resize: ResizeParameter,
        one_by_one: bool,
        boxes: bool | None = None,
        policy: str = FAIL,
        cache: Cache[bytes] | None = None,
    ) -> None:
        self._resize, self._one_by_one = resize, one_by_one
        self.boxes = True if boxes is None else boxes
        super().__init__(path, backend, transformer, order, policy=policy, cache=cache)
        self._first = self.bad.first_good(self._candidates(0), self._annotated)
        if boxes is None:
            self.boxes = self._first.type is not None

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of one sample's image and of one object."""
        return [self.shape, (FIELDS,)]

    def label_shape(self, size: int) -> tuple[int, ...]:
        """The shape of a batch's second array before its records are known: as if they had all
        objects of the first."""
        return (1, 1, max(1, len(self._first.objects)), FIELDS) if self.boxes else (size, 1, 1, 1)

    def _candidates(self, sample: int) -> Iterator[int]:
        """The record of a sample, and those that take its place if it is bad."""
        record = int(self._order.records(range(sample, sample + 1), len(self))[0])
        return ((record + i) % len(self) for i in range(len(self)))

    def _annotated(self, record: int) -> Annotated:
        return parse_annotated(self._record(record), self.where(record))

    def read(self, record: int) -> Sample:
        """The image as it is stored; the label is that of its first object."""
        found = self._annotated(record)
        first = int(found.objects[0, 0]) if len(found.objects) else found.datum.label
        return self._image(found, record), first

    def _image(self, found: Annotated, record: int) -> NDArray[Any]:
        transform, where = self._transform, self.where(record)
        colours = transform.force_color, transform.force_gray
        return datum_image(found.datum, where, *colours, reuse=True)

    def _checked(self, record: int, sample: int) -> Sample:
        """What decides the shape: an image that is ready for crop and mean."""
        return self._changed(record, sample)[0].image, 0

    def _changed(self, record: int, sample: int) -> tuple[Scene, int, tuple[int, int]]:
        """The scene of a sample before the crop, its Datum's label, and how high and wide the
        image was before it was resized."""
        where, found = self.where(record), self._annotated(record)
        if self.boxes and found.type not in (None, schema.AnnotatedDatum.BBOX):
            raise DataError(f"{where}: has annotations of type {found.type}, not boxes (BBOX)")
        scene = Scene(self._image(found, record), found.objects)
        height, width = scene.image.shape[1:]
        scene = self._transform.augment.change(scene, sample, where)
        channels, high, wide = scene.image.shape
        shape = self._transform.output_shape((channels, high, wide), where)
        if self._shape is not None and shape != self._shape and not self._one_by_one:
            raise DataError(
                f"{where}: has shape {shape}, the first record {self._shape}; set resize_param "
                "(not FIT_SMALL_SIZE) or crop_size, or use batch_size: 1"
            )
        return scene, found.datum.label, (height, width)

    def sample(self, number: int) -> tuple[Scene, int]:
        """The scene of a sample before the crop, its objects after it; and the Datum's label."""
        scene, label, size = self.bad.first_good(
            self._candidates(number), lambda record: self._changed(record, number)
        )
        return Scene(scene.image, self._cropped(scene, number, size)), label

    def _cropped(self, scene: Scene, number: int, size: tuple[int, int]) -> Floats:
        """The objects of a scene after the crop of a sample."""
        window, turned = self._transform.view(scene.image.shape, number)
        objects = through_window(scene.objects, window, self._transform.augment.emit)
        if turned:
            objects = mirrored(objects)
        return self._extrapolated(objects, window, size)

    def _extrapolated(self, objects: Floats, window: Any, size: tuple[int, int]) -> Floats:
        """Boxes in units of height_scale and width_scale, if these are given."""
        p = self._resize
        if not p.height_scale or p.resize_mode != schema.ResizeParameter.FIT_SMALL_SIZE:
            return objects
        scale = max(p.height / size[0], p.width / size[1])
        high = size[0] * scale * (window[3] - window[1])
        wide = size[1] * scale * (window[2] - window[0])
        objects = objects.copy()
        objects[:, BOX] *= np.array([wide / p.width_scale, high / p.height_scale] * 2, np.float32)
        return objects

    def fit(
        self, samples: range, buffers: Buffers, allocate: Callable[[tuple[int, ...]], Floats]
    ) -> tuple[Buffers, Buffers]:
        flat, rows = buffers[0].reshape(-1), buffers[1].reshape(-1)
        labels, found = [], []
        shape = self.shape
        for i, number in enumerate(samples):
            scene, label = self.sample(number)
            if self._one_by_one:
                channels, height, width = scene.image.shape
                shape = self._transform.output_shape((channels, height, width), "")
                flat = flat if flat.size >= prod(shape) else allocate((prod(shape),))
            place = flat[i * prod(shape) : (i + 1) * prod(shape)].reshape(1, *shape)
            self._transform([scene.image], range(number, number + 1), place)
            labels.append(label)
            found.append(np.pad(scene.objects, ((0, 0), (1, 0)), constant_values=i))
        data = flat[: len(samples) * prod(shape)].reshape(len(samples), *shape)
        top = _label_top(np.concatenate(found) if self.boxes else np.array(labels, np.float32))
        rows = rows if rows.size >= top.size else allocate((top.size,))
        rows[: top.size] = top.ravel()
        return (flat, rows), (data, rows[: top.size].reshape(top.shape))

    def objects(self, record: int, sample: int | None) -> Floats:
        if sample is None:
            return self._annotated(record).objects
        scene, _, size = self._changed(record, sample)
        return self._cropped(scene, sample, size)

    def look(self, record: int, sample: int) -> tuple[NDArray[Any], int, Floats]:
        image, label = self.read(record)
        stored = image.copy()
        scene, _, _ = self._changed(record, sample)
        channels, height, width = scene.image.shape
        shape = self._transform.output_shape((channels, height, width), self.where(record))
        seen = np.empty((1, *shape), np.float32)
        self._transform([scene.image], range(sample, sample + 1), seen)
        return stored, label, seen[0]


def _label_top(found: Floats) -> Floats:
    if found.ndim == 1:
        return found.reshape(-1, 1, 1, 1)
    if not len(found):
        found = np.full((1, FIELDS), -1, np.float32)
    return found.reshape(1, 1, -1, FIELDS)
