"""Looking at whole databases: their mean, whether every record is sound, a contact sheet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from .. import schema
from ..errors import DataError
from ..schema.files import replacing
from .datum import datum_image, parse_datum
from .db import Database, detect_backend, open_database
from .work import ordered, progress

R = TypeVar("R")


def _open(path: str, backend: str) -> Database:
    return open_database(path, backend or detect_backend(path))


def _name(database: Database, record: int) -> str:
    return f"{database.path}, record {database.key(record).decode(errors='replace')!r}"


def _image(database: Database, record: int) -> tuple[NDArray[Any], int, bool]:
    where = _name(database, record)
    datum = parse_datum(database.record(record), where)
    return datum_image(datum, where), datum.label, datum.encoded


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
    images = _each(database, "mean", lambda record: _image(database, record)[0], threads)
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
    labels: Counter[int] = field(default_factory=Counter)
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

    def look(record: int) -> tuple[str, int] | str:
        try:
            image, label, encoded = _image(database, record)
        except DataError as error:
            return str(error)
        if classes and not 0 <= label < classes:
            return f"{_name(database, record)}: has label {label}, outside the {classes} classes"
        kind = "encoded" if encoded else str(image.dtype)
        return f"{' x '.join(map(str, image.shape))} {kind}", label

    for result in _each(database, "checking", look, threads):
        if isinstance(result, str):
            found.problems.append(result)
        else:
            shape, label = result
            found.shapes[shape] += 1
            found.labels[label] += 1
    return found


_TILE, _CAPTION, _GAP = 96, 14, 4  # pixels


def contact_sheet(path: str, backend: str = "", count: int = 100, columns: int = 10) -> Image.Image:
    """`count` records, evenly spread over the database, each with its label and key."""
    database = _open(path, backend)
    count = min(count, len(database))
    records = [i * len(database) // count for i in range(count)]
    columns = min(columns, count)
    rows = -(-count // columns)
    step = (_TILE + _GAP, _TILE + _CAPTION + _GAP)
    sheet = Image.new("RGB", (columns * step[0] + _GAP, rows * step[1] + _GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for i, record in enumerate(records):
        image, label, _ = _image(database, record)
        left, top = _GAP + i % columns * step[0], _GAP + i // columns * step[1]
        sheet.paste(_thumbnail(image), (left, top))
        key = database.key(record).decode(errors="replace")
        draw.text((left, top + _TILE), f"{label}: {key}"[: _TILE // 6], fill="black")
    return sheet


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
