"""What DetectionOutput writes: the detections of a test set in the formats of VOC, COCO, ILSVRC.

They are collected until `num_test_image` images are through and then written, each file at once;
so a file is either that of a whole test or the one of before. Coordinates are pixels of the
original images, whose names and sizes come from a list in the order of the test.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from math import copysign, floor
from typing import Any, NamedTuple

import numpy as np

from .. import schema
from ..errors import DataError, FireError
from ..schema.files import replacing
from ..schema.reader import read_text
from .outputs import refusal

FORMATS = ("VOC", "COCO", "ILSVRC")
NEEDED = ("output_directory", "output_format", "label_map_file", "name_size_file")
F = np.float32
MOST_DIGITS = 9  # of the size of an image


class NamedImage(NamedTuple):
    """One line of name_size_file."""

    name: str
    height: int
    width: int


class Detection(NamedTuple):
    """One line of a result: the box is x, y, width, height, to a hundredth of a pixel."""

    image: str
    label: int
    score: float
    box: tuple[float, float, float, float]


def missing(param: Any) -> list[str]:
    """The fields of SaveOutputParameter that are not given; without them nothing is written."""
    return [field for field in NEEDED if not getattr(param, field)]


class DetectionFiles:
    """Collects detections image by image and writes them after every whole test."""

    def __init__(self, param: Any, classes: int, background: int, output_folder: str = "") -> None:
        self._param, self._output_folder = param, output_folder
        self._check_place(os.path.join(param.output_directory, param.output_name_prefix + "x"))
        if param.output_format not in FORMATS:
            raise DataError(
                f'output_format "{param.output_format}" is unknown; known: {", ".join(FORMATS)}'
            )
        if param.HasField("resize_param"):
            _check_resize(param.resize_param)
        self._labels = [c for c in range(classes) if c != background]
        self._names = _read_labels(param.label_map_file, self._labels)
        self._images = read_images(param.name_size_file)
        self._count = int(param.num_test_image) or len(self._images)
        if self._count > len(self._images):
            raise DataError(
                f"num_test_image is {self._count}, but {param.name_size_file} names only "
                f"{len(self._images)} images"
            )
        self._done = 0
        self._found: list[Detection] = []

    def _check_place(self, path: str) -> None:
        if reason := refusal(path, self._output_folder):
            raise DataError(reason)

    def add(self, rows: Iterable[Any]) -> None:
        """The rows (label, confidence, xmin, ymin, xmax, ymax) of the next image."""
        image = self._images[self._done]
        for label, score, *box in rows:
            if not np.isfinite([label, score, *box]).all():
                raise DataError(
                    f"a detection of image {image.name} is not finite: label {label:g}, confidence "
                    f"{score:g}, box {box}; the weights may have diverged"
                )
            pixels = in_pixels(np.asarray(box, F), image, self._param)
            xmin, ymin, xmax, ymax = pixels
            rounded = [_hundredth(v) for v in (xmin, ymin, F(xmax - xmin), F(ymax - ymin))]
            x, y, width, height = rounded
            self._found.append(
                Detection(image.name, int(label), float(score), (x, y, width, height))
            )
        self._done += 1
        if self._done == self._count:
            self._write()
            self._done, self._found = 0, []

    def _write(self) -> None:
        directory, prefix = self._param.output_directory, self._param.output_name_prefix
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"output_directory {directory} cannot be made: {error.strerror}"
            ) from None
        for name, text in self._texts():
            self._check_place(os.path.join(directory, prefix + name))
            with replacing(os.path.join(directory, prefix + name), DataError) as path:
                path.write_text(text, encoding="utf-8")

    def _texts(self) -> Iterable[tuple[str, str]]:
        """What to write: file names after the prefix, and contents."""
        if self._param.output_format == "COCO":
            yield ".json", _json(self._found, self._names)
        elif self._param.output_format == "ILSVRC":
            lines = (f"{d.image} {d.label} {d.score:g} {_corners(d)}\n" for d in self._found)
            yield ".txt", "".join(lines)
        else:
            for label in self._labels:
                lines = (
                    f"{d.image} {d.score:g} {_corners(d)}\n"
                    for d in self._found
                    if d.label == label
                )
                yield f"{self._names[label]}.txt", "".join(lines)


def _corners(detection: Detection) -> str:
    """xmin ymin xmax ymax in whole pixels, as Caffe cuts them off."""
    x, y, width, height = (int(v) for v in detection.box)
    return f"{x} {y} {x + width} {y + height}"


def _json(found: Iterable[Detection], names: dict[int, str]) -> str:
    def number(text: str) -> int | str:
        return int(text) if re.fullmatch(r"-?[0-9]+", text) else text

    rows = (
        json.dumps(
            {
                "image_id": number(d.image),
                "category_id": number(names[d.label]),
                "bbox": [float(str(F(v))) for v in d.box],
                "score": float(str(F(d.score))),
            }
        )
        for d in found
    )
    return "[\n" + ",\n".join(rows) + "\n]\n"


def _hundredth(value: Any) -> float:
    """Rounded to two places as C does: halves away from zero."""
    scaled = float(F(value) * F(100))
    return float(F(copysign(floor(abs(scaled) + 0.5), scaled) / 100))


def in_pixels(box: Any, image: NamedImage, param: Any) -> Any:
    """A box in parts of the net's input as pixels of the original image."""
    sides = np.array([image.width, image.height] * 2, F)
    resize = param.resize_param
    modes = schema.ResizeParameter
    if param.HasField("resize_param"):
        if resize.resize_mode == modes.FIT_LARGE_SIZE_AND_PAD:
            box = _without_padding(box, image, resize)
        elif resize.resize_mode == modes.FIT_SMALL_SIZE and resize.height_scale:
            return box * np.array([resize.width_scale, resize.height_scale] * 2, F)
    return np.clip(box, F(0), F(1)) * sides


def _without_padding(box: Any, image: NamedImage, resize: Any) -> Any:
    """A box in parts of a padded image in parts of the image itself."""
    aspect, height, width = F(image.width) / F(image.height), F(resize.height), F(resize.width)
    inside = np.array([0, 0, 1, 1], F)
    if aspect > width / height:
        edge = (height - width / aspect) / F(2) / height
        inside[1], inside[3] = edge, F(1) - edge
    else:
        edge = (width - height * aspect) / F(2) / width
        inside[0], inside[2] = edge, F(1) - edge
    if not ((box[:2] < inside[2:]) & (box[2:] > inside[:2])).all():
        return box  # wholly in the padding: Caffe leaves it as it is
    return (box - np.tile(inside[:2], 2)) / np.tile(inside[2:] - inside[:2], 2)


def _check_resize(resize: Any) -> None:
    if resize.height < 1 or resize.width < 1:
        raise DataError("resize_param needs height and width, the size of the net's input")
    if bool(resize.height_scale) != bool(resize.width_scale):
        raise DataError("resize_param: height_scale and width_scale must be given together")


def _read_labels(path: str, wanted: Iterable[int]) -> dict[int, str]:
    """Names of the classes, from a LabelMap in text form."""
    try:
        items = schema.parse_text(read_text(path), schema.LabelMap(), path).item
    except FireError as error:
        raise DataError(f"label_map_file cannot be read: {error}") from None
    names: dict[int, str] = {}
    for item in items:
        if item.label in names:
            raise DataError(f"{path}: label {item.label} occurs twice")
        if "/" in item.name or "\0" in item.name:
            raise DataError(f'{path}: "{item.name}" cannot be part of a file name')
        names[item.label] = item.name
    without = [str(label) for label in wanted if not names.get(label)]
    if without:
        raise DataError(f"{path}: has no name for label {', '.join(without)}")
    return names


def _is_size(text: str) -> bool:
    return text.isdecimal() and len(text) <= MOST_DIGITS and int(text) > 0


def read_images(path: str) -> list[NamedImage]:
    """Names and sizes, in the order of the test."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"name_size_file {path} cannot be read: {reason}") from None
    images = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 3 or not all(map(_is_size, words[1:])):
            raise DataError(f'{path}:{number}: expected "name height width", got {line[:200]!r}')
        images.append(NamedImage(words[0], int(words[1]), int(words[2])))
    if not images:
        raise DataError(f'{path}: names no images; write one "name height width" per line')
    return images
