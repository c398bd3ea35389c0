"""The embedded shapes: small colour images of discs, squares, triangles and crosses, drawn by code,
with the box of every shape and a mask of classes, for detection and segmentation without a
download.

Everything comes from the counter-based generator and from operations that round the same on every
machine (no sine, no library call), so a scene is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import schema
from ..backend import random
from .annotation import encode_annotated
from .datum import encode_datum
from .drawn import make_database

SIZE = 96
NAMES = ("background", "disc", "square", "triangle", "cross")  # by label
SPLITS = {"train": 4_000, "test": 800}
_SEED = 96
_MOST = 4  # shapes of a scene
_TRIES = 10  # candidates; those that would cover an earlier shape are left out
_CHOICES = 8  # uniform numbers of one candidate

# (least, most) of each uniform choice.
_RADIUS = (8.0, 22.0)  # of the circle around a shape, pixels
_TURN = (-1.0, 1.0)  # tangent of half the angle: a quarter of a circle each way
_LEAN = (-40.0, 40.0)  # how much the background changes over the image, grey levels
_GRAIN = (0.0, 0.15)  # noise, of full range
_APART = (
    70.0  # of the 255 levels, in some channel, between a shape and the middle of the background
)
_COVER = 0.1  # of the smaller of two boxes that may lie in the other

Floats = NDArray[np.float64]


class Shape(NamedTuple):
    """One shape of a scene: its label (see NAMES) and its box in pixels."""

    label: int
    xmin: float
    ymin: float
    xmax: float
    ymax: float


class Scene(NamedTuple):
    """`image` is (3, SIZE, SIZE) in BGR order, `mask` (SIZE, SIZE) the label of every pixel."""

    image: NDArray[np.uint8]
    shapes: list[Shape]
    mask: NDArray[np.uint8]


def scenes(split: str, first: int, count: int) -> Iterator[Scene]:
    """The scenes of a split ("train", "test" or any other name), from number `first` on."""
    width = 7 + _TRIES * _CHOICES
    numbers = np.empty((count, width), np.float32)
    random.uniform_batch(_key(split, "scene"), 0, first, count, width, numbers)
    for i, choice in enumerate(numbers.astype(np.float64)):
        grain = random.bits(_key(split, "grain"), 0, first + i, 3 * SIZE**2)
        yield _scene(choice, grain)


def _key(split: str, purpose: str) -> int:
    return random.key(_SEED, f"shapes {split} {purpose}")


def _spread(unit: float, limits: tuple[float, float]) -> float:
    return limits[0] + unit * (limits[1] - limits[0])


def _scene(choice: Floats, grain: NDArray[np.uint32]) -> Scene:
    paper = choice[:3] * 255.0
    count = 1 + int(choice[3] * _MOST)
    across = (np.arange(SIZE) + 0.5) / SIZE - 0.5
    lean = _spread(choice[4], _LEAN) * across + _spread(choice[5], _LEAN) * across[:, None]
    value = paper[:, None, None] + lean
    mask = np.zeros((SIZE, SIZE), np.uint8)
    shapes: list[Shape] = []
    for candidate in choice[7:].reshape(_TRIES, _CHOICES).tolist():
        outline = _outline(candidate)
        shape = outline.shape()
        if len(shapes) < count and all(_free(shape, other) for other in shapes):
            shapes.append(shape)
            cover = outline.cover()
            mask[cover >= 0.5] = shape.label
            ink = _ink(np.array(candidate[5:8]), paper)[:, None, None]
            value = value + (ink - value) * cover
    # The difference of two 16-bit halves: a triangular distribution around nothing.
    noise = ((grain >> 16).astype(np.float64) - (grain & 0xFFFF)) / 65536.0 * 255.0
    value = value + noise.reshape(value.shape) * _spread(choice[6], _GRAIN)
    return Scene(np.clip(value, 0.0, 255.0).astype(np.uint8), shapes, mask)


def _ink(choice: Floats, paper: Floats) -> Floats:
    """A colour that can be told from the background's."""
    ink = choice * 255.0
    if np.abs(ink - paper).max() < _APART:
        ink = np.where(paper < 127.5, 255.0 - ink * 0.25, ink * 0.25)
    return ink


def _free(shape: Shape, other: Shape) -> bool:
    width = min(shape.xmax, other.xmax) - max(shape.xmin, other.xmin)
    height = min(shape.ymax, other.ymax) - max(shape.ymin, other.ymin)
    smaller = min((s.xmax - s.xmin) * (s.ymax - s.ymin) for s in (shape, other))
    return width <= 0 or height <= 0 or width * height <= _COVER * smaller


class _Outline(NamedTuple):
    """Where a shape is and how it lies: convex parts by their corners; a disc has none."""

    label: int
    x: float
    y: float
    radius: float
    parts: list[list[tuple[float, float]]]

    def shape(self) -> Shape:
        corners = [corner for part in self.parts for corner in part]
        xs, ys = zip(*(corners or _bar(self.radius, self.radius)), strict=True)
        box = (self.x + min(xs), self.y + min(ys), self.x + max(xs), self.y + max(ys))
        return Shape(self.label, *box)

    def cover(self) -> Floats:
        """How much of every pixel the shape covers, 0 to 1."""
        pixels = np.arange(SIZE, dtype=np.float64)
        right, down = pixels + (0.5 - self.x), (pixels + (0.5 - self.y))[:, None]
        inside: Floats
        if self.parts:
            inside = np.max([_inside(part, right, down) for part in self.parts], axis=0)
        else:
            inside = self.radius - np.sqrt(right * right + down * down)
        return np.clip(inside + 0.5, 0.0, 1.0)


def _outline(choice: list[float]) -> _Outline:
    label = 1 + int(choice[0] * (len(NAMES) - 1))
    radius = _spread(choice[1], _RADIUS)
    x, y = (_spread(unit, (radius + 1, SIZE - radius - 1)) for unit in choice[2:4])
    t = _spread(choice[4], _TURN)
    cosine, sine = (1 - t * t) / (1 + t * t) * radius, 2 * t / (1 + t * t) * radius
    parts = [
        [(px * cosine - py * sine, px * sine + py * cosine) for px, py in part]
        for part in _PARTS[label]
    ]
    return _Outline(label, x, y, radius, parts)


def _inside(corners: list[tuple[float, float]], right: Floats, down: Floats) -> Floats:
    """How far each pixel's centre lies inside a convex polygon with corners in turn, clockwise."""
    distances = []
    for (ax, ay), (bx, by) in zip(corners, corners[1:] + corners[:1], strict=True):
        dx, dy = bx - ax, by - ay
        distances.append(((down - ay) * dx - (right - ax) * dy) / sqrt(dx * dx + dy * dy))
    nearest: Floats = np.min(distances, axis=0)
    return nearest


def _bar(width: float, height: float) -> list[tuple[float, float]]:
    return [(-width, -height), (width, -height), (width, height), (-width, height)]


# Convex parts of the shapes within the circle of radius 1, corners clockwise on the screen.
_PARTS: dict[int, list[list[tuple[float, float]]]] = {
    1: [],
    2: [_bar(0.7, 0.7)],
    3: [[(0.0, -1.0), (0.86, 0.5), (-0.86, 0.5)]],
    4: [_bar(0.95, 0.28), _bar(0.28, 0.95)],
}


def make_shapes(folder: Path) -> list[str]:
    """Write shapes_train_lmdb and shapes_test_lmdb of AnnotatedDatums, and the names of the
    classes as labelmap_shapes.prototxt; returns a sentence on each."""
    told = [
        make_database(folder / f"shapes_{split}_lmdb", "shapes", count, partial(_records, split))
        for split, count in SPLITS.items()
    ]
    names = schema.LabelMap()
    for label, name in enumerate(NAMES):
        names.item.add(name=name, label=label, display_name=name)
    path = folder / "labelmap_shapes.prototxt"
    schema.write_text(names, path)
    return [*told, f"{path}: {len(NAMES)} classes"]


def _records(split: str, first: int, count: int) -> Iterator[bytes]:
    for scene in scenes(split, first, count):
        rows = [(s.label, i, *(v / SIZE for v in s[1:]), 0) for i, s in enumerate(scene.shapes)]
        datum = encode_datum(scene.image, None, encoded=False)
        yield encode_annotated(datum, np.array(rows, np.float32))
