"""DetectionEvaluate: which detections are right, for the mean average precision of a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.blob import Blob
from ..backend.tensor import on_host
from ..errors import DataError
from ..schema.proto import LayerParameter
from .base import Layer, register_layer
from .checks import forbid_in_place
from .description import Storage
from .detection_files import NamedImage, in_pixels, read_images
from .detection_output import ROW
from .indices import NOT_AN_INDEX, truncated
from .multibox import FIELDS, object_labels

RESULT = 5  # image, label, confidence, right, wrong


@register_layer("DetectionEvaluate")
class DetectionEvaluate(Layer):
    """top (1 x 1 x (classes + detections) x 5), as SSD's solver reads it.

    First a row -1, label, number of objects, -1, -1 for every class but the background; then image,
    label, confidence, right and wrong (1 or 0) of every detection, by image, label and confidence.
    A detection is right if the object of its class that it overlaps most overlaps it by
    overlap_threshold and has not been found before. One that finds a difficult object, where these
    do not count, is neither right nor wrong.

    Bottoms: detections (see DetectionOutput) and objects (see AnnotatedData). With a
    name_size_file boxes are compared in pixels of the original images.
    """

    storage = Storage.FLOAT32
    family = "score"
    judges = True
    bottoms = (2, 2)

    @classmethod
    def object_labels(cls, param: LayerParameter) -> range:
        return object_labels(param.detection_evaluate_param)

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)
        param = self.param.detection_evaluate_param
        if param.num_classes < 1:
            self.fail(f"num_classes must be at least 1, got {param.num_classes}")
        if param.overlap_threshold <= 0:
            self.fail(f"overlap_threshold must be positive, got {param.overlap_threshold:g}")
        has_background = 0 <= param.background_label_id < param.num_classes
        self._classes = param.num_classes - has_background
        self._sizes: list[NamedImage] = []
        if param.name_size_file:
            try:
                self._sizes = read_images(param.name_size_file)
            except DataError as error:
                self.fail(f"{error}; without name_size_file boxes are compared in parts of images")

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        for blob, width in zip(bottom, (ROW, FIELDS), strict=True):
            if len(blob.shape) != 4 or blob.shape[:2] != (1, 1) or blob.shape[3] != width:
                self.fail(f'"{blob.name}" must be 1 x 1 x count x {width}, got {list(blob.shape)}')
        top[0].reshape(1, 1, self._classes + bottom[0].shape[2], RESULT)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        found, truth = self._read(bottom[0], ROW), self._read(bottom[1], FIELDS)
        out = np.zeros((top[0].shape[2], RESULT), np.float32)
        out[: self._classes] = self._objects(truth)
        rows: list[list[float]] = []
        for image in np.unique(found[:, 0]).tolist():
            own, objects = found[found[:, 0] == image], truth[truth[:, 0] == image]
            for label in np.unique(own[:, 1]).tolist():
                boxes = objects[objects[:, 1] == label]
                rows += self._judged(int(image), own[own[:, 1] == label], boxes)
        if rows:
            out[self._classes : self._classes + len(rows)] = rows
        top[0].data[0, 0] = self.xp.asarray(out)

    def _read(self, blob: Blob, width: int) -> Any:
        """The rows of a bottom that are not padding."""
        rows = on_host(blob.data).reshape(-1, width)
        rows = rows[rows[:, 0] != -1]
        wrong = (truncated(np, rows[:, :2]) == NOT_AN_INDEX).any(axis=1)
        if wrong.any():
            self.fail(
                f'row {rows[wrong][0].tolist()} in "{blob.name}" makes no sense: it must begin '
                f"with the number of an image and a label"
            )
        return rows

    def _objects(self, truth: Any) -> Any:
        """The row of each class but the background: how many objects of it there are."""
        param = self.param.detection_evaluate_param
        counted = truth if param.evaluate_difficult_gt else truth[truth[:, 7] == 0]
        labels = np.arange(param.num_classes)
        labels = labels[labels != param.background_label_id]
        rows = np.full((len(labels), RESULT), -1, np.float32)
        rows[:, 1], rows[:, 2] = labels, 0
        known, counts = np.unique(counted[:, 1], return_counts=True)
        place = np.searchsorted(labels, known)
        same = np.append(labels, -1)[place] == known
        rows[place[same], 2] = counts[same]
        return rows

    def _judged(self, image: int, found: Any, objects: Any) -> list[list[float]]:
        """The rows of one image's detections of one class."""
        if not len(objects):
            return [[*row[:3], 0, 1] for row in found.tolist()]
        param = self.param.detection_evaluate_param
        found = found[np.argsort(-found[:, 2], kind="stable")]
        overlap = self._overlaps(image, found[:, 3:7], objects[:, 3:7])
        taken: set[int] = set()
        rows: list[list[float]] = []
        for row, shares in zip(found.tolist(), overlap, strict=True):
            best = int(shares.argmax())
            right, wrong = 0, 1
            if shares[best] >= np.float32(param.overlap_threshold):
                if not param.evaluate_difficult_gt and objects[best, 7]:
                    wrong = 0
                elif best not in taken:
                    right, wrong = 1, 0
                    taken.add(best)
            rows.append([*row[:3], right, wrong])
        return rows

    def _overlaps(self, image: int, found: Any, objects: Any) -> Any:
        """Intersection over union, detections x objects; pixels have a width of 1."""
        pixel = np.float32(0)
        if self._sizes:
            pixel = np.float32(1)
            size = self._sizes[self._number(image) % len(self._sizes)]
            param = self.param.detection_evaluate_param
            found, objects = (
                np.stack([in_pixels(box, size, param) for box in boxes])
                for boxes in (found, objects)
            )
        low = np.maximum(found[:, None, :2], objects[None, :, :2])
        high = np.minimum(found[:, None, 2:], objects[None, :, 2:])
        apart = (low > high).any(axis=2)
        shared = np.where(apart, np.float32(0), _area(high - low, pixel))
        whole = _area(found[:, 2:] - found[:, :2], pixel)[:, None]
        union = whole + _area(objects[:, 2:] - objects[:, :2], pixel) - shared
        return np.where(shared > 0, shared / np.where(shared > 0, union, 1), 0)

    def _number(self, image: int) -> int:
        """The number of a batch's image in the whole test, whichever rank runs the pass."""
        context = self.context
        return (context.step * context.leaves + context.leaf) * context.images + image

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if any(propagate_down):
            self.fail("judgements have no gradient; stop it here with propagate_down: false")

    def allow_force_backward(self, bottom_index: int) -> bool:
        return False


def _area(sides: Any, pixel: Any) -> Any:
    sides = np.maximum(sides, np.float32(-pixel)) + pixel
    return sides[..., 0] * sides[..., 1]
