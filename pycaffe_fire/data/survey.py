"""Looking at whole databases: their mean, whether every record is sound, a contact sheet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from .. import schema
from ..errors import DataError
from ..schema.files import replacing
from .annotation import is_annotated, parse_annotated
from .datum import datum_image, parse_datum
from .db import Database, detect_backend, open_database
from .objects import BOX, LABEL
from .work import ordered, progress

R = TypeVar("R")


def _open(path: str, backend: str) -> Database:
    return open_database(path, backend or detect_backend(path))


def _name(database: Database, record: int) -> str:
    return f"{database.path}, record {database.key(record).decode(errors='replace')!r}"


class _Record(NamedTuple):
    """A Datum's image and label, or an AnnotatedDatum's image and objects."""

    image: NDArray[Any]
    encoded: bool
    label: int
    objects: NDArray[np.float32] | None

    @property
    def labels(self) -> list[int]:
        if self.objects is None:
            return [self.label]
        return [int(label) for label in self.objects[:, LABEL]]


def _read(database: Database, record: int) -> _Record:
    where, stored = _name(database, record), database.record(record)
    if not is_annotated(stored):
        datum = parse_datum(stored, where)
        return _Record(datum_image(datum, where), datum.encoded, datum.label, None)
    datum, kind, objects = parse_annotated(stored, where)
    image = datum_image(datum, where)
    return _Record(image, datum.encoded, datum.label, None if kind is None else objects)


def _each(
    database: Database, what: str, function: Callable[[int], R], threads: int = 0
) -> Iterator[R]:
    with progress(what, len(database)) as advance:
        for result in ordered(function, range(len(database)), threads):
            advance(1)
            yield result


def compute_mean(path: str, backend: str = "", threads: int = 0) -> NDArray[np.float32]:
    """The mean (channels, height, width) of all images of a database."""
    database = _open(path, backend)
    total: NDArray[np.float64] | None = None
    images = _each(database, "mean", lambda record: _read(database, record).image, threads)
    for record, image in enumerate(images):
        if total is None:
            total = np.zeros(image.shape)
        elif image.shape != total.shape:
            raise DataError(
                f"{_name(database, record)}: has shape {image.shape}, the first record "
                f"{total.shape}; a mean needs images of one size"
            )
        total += image
    assert total is not None  # databases are never empty
    mean: NDArray[np.float32] = total.astype(np.float32) / np.float32(len(database))
    return mean


def write_mean(path: str | os.PathLike[str], mean: NDArray[np.float32]) -> None:
    """As Caffe's compute_image_mean writes it: a BlobProto with num, channels, height and width."""
    channels, height, width = mean.shape
    blob = schema.BlobProto(num=1, channels=channels, height=height, width=width)
    blob.data.extend(mean.ravel().tolist())
    with replacing(path, DataError) as temporary, open(temporary, "wb") as file:
        file.write(blob.SerializeToString())


@dataclass
class Survey:
    """What `check` found."""

    path: str
    count: int
    labels: Counter[int] = field(default_factory=Counter)  # of images, or of objects in them
    annotated: int = 0  # records with boxes
    empty: int = 0  # of these, records without an object
    shapes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


def check(path: str, backend: str = "", classes: int = 0, threads: int = 0) -> Survey:
    """Read and decode every record; problems are collected, not raised.

    A damaged LMDB can end the process that reads it, so it is read by one of its own.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(check_here, path, backend, classes, threads).result()
        except BrokenProcessPool:
            raise DataError(
                f"{path}: is so damaged that it ended the process that read it; copy it again or "
                "make it again"
            ) from None


def check_here(path: str, backend: str = "", classes: int = 0, threads: int = 0) -> Survey:
    """`check` in this process, for a database that is known to be sound."""
    database = _open(path, backend)
    found = Survey(path, len(database))

    def look(record: int) -> _Record | str:
        try:
            read = _read(database, record)
        except DataError as error:
            return str(error)
        problem = _problem(read, classes)
        return f"{_name(database, record)}: {problem}" if problem else read

    for read in _each(database, "checking", look, threads):
        if isinstance(read, str):
            found.problems.append(read)
            continue
        kind = "encoded" if read.encoded else str(read.image.dtype)
        found.shapes[f"{' x '.join(map(str, read.image.shape))} {kind}"] += 1
        found.labels.update(read.labels)
        found.annotated += read.objects is not None
        found.empty += not read.labels
    return found


def _problem(read: _Record, classes: int) -> str:
    """What a net could not use; empty if nothing."""
    wrong = [label for label in read.labels if classes and not 0 <= label < classes]
    if wrong:
        return f"has label {wrong[0]}, outside the {classes} classes"
    if read.objects is not None:
        boxes = read.objects[:, BOX]
        inverted = (boxes[:, 2:] <= boxes[:, :2]).any(axis=1)
        if inverted.any():
            box = [round(float(v), 4) for v in boxes[inverted][0]]
            return f"has an empty box: xmin, ymin, xmax, ymax are {box}"
    return ""


_TILE, _CAPTION, _GAP = 96, 14, 4  # pixels
_COLOURS = ("red", "lime", "cyan", "yellow", "magenta", "orange", "deepskyblue", "white")


def contact_sheet(path: str, backend: str = "", count: int = 100, columns: int = 10) -> Image.Image:
    """`count` records, evenly spread over the database, each with its labels, boxes and key."""
    database = _open(path, backend)
    count = min(count, len(database))
    records = [i * len(database) // count for i in range(count)]
    columns = min(columns, count)
    rows = -(-count // columns)
    step = (_TILE + _GAP, _TILE + _CAPTION + _GAP)
    sheet = Image.new("RGB", (columns * step[0] + _GAP, rows * step[1] + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for i, record in enumerate(records):
        read = _read(database, record)
        left, top = _GAP + i % columns * step[0], _GAP + i // columns * step[1]
        tile = _thumbnail(read.image)
        if read.objects is not None:
            _draw_boxes(tile, read.objects)
        sheet.paste(tile, (left, top))
        key = database.key(record).decode(errors="replace")
        labels = ",".join(map(str, sorted(set(read.labels)))) or "none"
        draw.text((left, top + _TILE), f"{labels}: {key}"[: _TILE // 6], fill="black")
    return sheet


def _draw_boxes(tile: Image.Image, objects: NDArray[np.float32]) -> None:
    draw = ImageDraw.Draw(tile)
    sides = np.array([tile.width, tile.height] * 2)
    for row in objects:
        xmin, ymin, xmax, ymax = np.sort((row[BOX] * sides).reshape(2, 2), axis=0).ravel().tolist()
        colour = _COLOURS[int(row[LABEL]) % len(_COLOURS)]
        draw.rectangle((xmin, ymin, xmax - 1, ymax - 1), outline=colour)


def _thumbnail(image: NDArray[Any]) -> Image.Image:
    """Float images are spread over the whole range of grey; extra channels are left out."""
    if image.dtype != np.uint8:
        low, high = float(np.nanmin(image)), float(np.nanmax(image))
        image = ((image - low) * (255.0 / max(high - low, 1e-12))).astype(np.uint8)
    planes = image[2::-1] if len(image) >= 3 else image[:1]
    pixels = np.ascontiguousarray(planes.transpose(1, 2, 0))
    tile = Image.fromarray(pixels if len(planes) == 3 else pixels[:, :, 0]).convert("RGB")
    scale = _TILE / max(tile.size)
    size = max(1, round(tile.width * scale)), max(1, round(tile.height * scale))
    grown = Image.Resampling.NEAREST if scale > 2 else Image.Resampling.BILINEAR
    return tile.resize(size, grown)


def save_sheet(sheet: Image.Image, out: str | os.PathLike[str]) -> None:
    kind = os.path.splitext(os.fspath(out))[1].lower()
    if kind not in (".png", ".jpg", ".jpeg"):
        raise DataError(f"{os.fspath(out)}: a contact sheet is written as .png or .jpg")
    with replacing(out, DataError) as temporary:
        sheet.save(temporary, "PNG" if kind == ".png" else "JPEG")
