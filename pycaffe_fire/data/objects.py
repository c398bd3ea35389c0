"""The objects of an image, and what becomes of their boxes when only a window of it is kept.

Objects are rows (label, instance, xmin, ymin, xmax, ymax, difficult), float32; coordinates are in
parts of the image's width and height. A window (xmin, ymin, xmax, ymax) is given in the same
units and may reach beyond the image.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..schema.proto import EmitConstraint

Floats = NDArray[np.float32]
Window = tuple[float, float, float, float]

ROW = 7
LABEL, INSTANCE, BOX, DIFFICULT = 0, 1, slice(2, 6), 6
NO_OBJECTS: Floats = np.zeros((0, ROW), np.float32)


class Scene(NamedTuple):
    """An image (channels, height, width) and the objects in it."""

    image: NDArray[Any]
    objects: Floats


def areas(boxes: Floats) -> Floats:
    """Width times height; 0 for boxes turned inside out."""
    sides: Any = np.maximum(boxes[..., 2:] - boxes[..., :2], np.float32(0))
    product: Floats = sides[..., 0] * sides[..., 1]
    return product


def shared_areas(boxes: Floats, window: Floats) -> Floats:
    """How much of each box lies in the window."""
    low, high = np.maximum(boxes[:, :2], window[:2]), np.minimum(boxes[:, 2:], window[2:])
    return areas(np.concatenate((low, high), axis=1))


def _shares(part: Floats, whole: Floats) -> Floats:
    return np.where(part > 0, part / np.where(part > 0, whole, np.float32(1)), np.float32(0))


def overlaps(boxes: Floats, window: Floats) -> Floats:
    """Intersection over union of each box with the window."""
    shared = shared_areas(boxes, window)
    return _shares(shared, areas(boxes) + areas(window) - shared)


def coverages(boxes: Floats, window: Floats) -> tuple[Floats, Floats]:
    """The share of each box that lies in the window, and of the window that lies in each box."""
    shared = shared_areas(boxes, window)
    return _shares(shared, areas(boxes)), _shares(
        shared, np.broadcast_to(areas(window), len(boxes))
    )


def through_window(objects: Floats, window: Window, emit: EmitConstraint | None) -> Floats:
    """The objects that are seen in a window, their boxes in its units and cut at its border.

    `emit` says which objects count as seen: those whose centre lies in the window, or enough of
    their area; without it all that reach into it.
    """
    if not len(objects):
        return objects
    frame = np.array(window, np.float32)
    if emit is not None:
        objects = objects[_emitted(objects[:, BOX], frame, emit)]
    low, size = np.tile(frame[:2], 2), np.tile(frame[2:] - frame[:2], 2)
    boxes: Any = np.clip((objects[:, BOX] - low) / size, np.float32(0), np.float32(1))
    objects = objects.copy()
    objects[:, BOX] = boxes
    return objects[areas(boxes) > 0]


def _emitted(boxes: Floats, frame: Floats, emit: EmitConstraint) -> NDArray[np.bool_]:
    if emit.emit_type == schema.EmitConstraint.MIN_OVERLAP:
        enough: NDArray[np.bool_] = coverages(boxes, frame)[0] > np.float32(emit.emit_overlap)
        return enough
    centre: Any = (boxes[:, :2] + boxes[:, 2:]) / 2
    inside: NDArray[np.bool_] = ((centre >= frame[:2]) & (centre <= frame[2:])).all(axis=1)
    return inside


def mirrored(objects: Floats) -> Floats:
    """The same objects after the image was mirrored left to right."""
    turned: Floats = objects.copy()
    turned[:, 2], turned[:, 4] = 1 - objects[:, 4], 1 - objects[:, 2]
    return turned
