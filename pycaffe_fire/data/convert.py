"""Making databases of images and of the classic small sets, record by record as Caffe's tools."""

from __future__ import annotations

import gzip
import logging
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..backend import random
from ..errors import DataError
from .bad_records import FAIL, check_policy
from .datum import encode_datum, image_datum
from .image import encode_image, is_file_of_kind, read_bytes, read_image
from .image_list import read_list
from .pixel_limit import max_pixels
from .resize import resize
from .work import ordered, progress
from .writer import DatabaseWriter

log = logging.getLogger("pycaffe_fire")

_SHUFFLE_KEY = random.key(1, "convert_imageset")
_PAIRS_KEY = random.key(1, "convert_mnist_siamese_data")


class Listed(Protocol):
    """A line of a list that begins with the path of an image."""

    @property
    def path(self) -> str: ...


@dataclass
class ImageSet:
    """What convert_imageset is asked for; fields are its flags."""

    root: str
    list_file: str
    database: str
    backend: str = "lmdb"
    gray: bool = False
    shuffle: bool = False
    resize_width: int = 0
    resize_height: int = 0
    check_size: bool = False
    encoded: bool = False
    encode_type: str = ""
    threads: int = 0
    policy: str = FAIL

    def convert(self) -> tuple[int, int]:
        """Write the database; returns how many images it holds and how many were skipped."""
        check_policy(self.policy)
        entries = self._entries()
        if self.shuffle:
            words = random.bits(_SHUFFLE_KEY, 0, 0, len(entries))
            entries = [entries[i] for i in np.argsort(words, kind="stable")]
        skipped, size = 0, 0
        with (
            DatabaseWriter(self.database, self.backend) as writer,
            progress("converting", len(entries)) as advance,
        ):
            for number, result in enumerate(ordered(self._record, entries, self.threads)):
                advance(1)
                if isinstance(result, DataError):
                    skipped += 1
                    log.warning("skipped: %s", result)
                    continue
                record, held = result
                size = size or held
                if self.check_size and held != size:
                    raise DataError(
                        f"{self.root}{entries[number].path}: holds {held:,} bytes, the first "
                        f"image {size:,} (--check_size); give --resize_height and --resize_width"
                    )
                writer.put(f"{number:08d}_{entries[number].path}".encode(errors=_ESCAPE), record)
            if skipped == len(entries):
                raise DataError(f"{self.list_file}: none of its {skipped:,} images can be used")
        return len(entries) - skipped, skipped

    def _entries(self) -> Sequence[Listed]:
        """The lines of the list, in its order."""
        return read_list(self.list_file)

    def _converted(self, entry: Any) -> tuple[bytes, int]:
        """The record of an entry, and the size of its data."""
        return self._datum(self.root + entry.path, entry.label)

    def _record(self, entry: Listed) -> tuple[bytes, int] | DataError:
        """What `_converted` makes; an error only where those are skipped."""
        try:
            return self._converted(entry)
        except DataError as error:
            if self.policy != FAIL:
                return error
            hint = "--policy=skip leaves such images out"
            if not os.path.exists(self.root + entry.path) and not self.root.endswith("/"):
                hint = f'"{self.root}" is put in front as it is: does it miss a slash at its end?'
            raise DataError(f"{error} ({hint})") from None

    def _resizes(self) -> bool:
        """Are images to be resized? Then files are never stored as they are."""
        return bool(self.resize_height and self.resize_width)

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """What an image of this size is resized to."""
        return (self.resize_height, self.resize_width) if self._resizes() else (height, width)

    def _datum(self, path: str, label: int | None) -> tuple[bytes, int]:
        data = read_bytes(path)
        image = read_image(path, not self.gray, data)
        height, width = self._size(*image.shape[1:])
        image = resize(image, height, width)
        if not self.encoded and not self.encode_type:
            return encode_datum(image, label, encoded=False), image.size
        kind = (self.encode_type or os.path.splitext(path)[1][1:]).lower()
        if self._resizes() or not is_file_of_kind(path, kind):
            data = encode_image(image, kind, path)
        return image_datum(data, label), len(data)


_ESCAPE = "surrogateescape"  # file names that are not UTF-8 come through as they are


def convert_mnist(images: str, labels: str, database: str, backend: str) -> int:
    """MNIST's two files (also gzipped) as a database; returns the number of records."""
    with ExitStack() as files:
        (count, *size), pixels, labelled = _open_mnist(files, images, labels)
        records = (
            (b"%08d" % i, encode_datum(_idx_entry(pixels, images, (1, *size)), int(label[0])))
            for i, label in enumerate(_idx_entry(labelled, labels, (1,)) for _ in range(count))
        )
        written = write_all(
            database, backend, _all_of(records, (pixels, images), (labelled, labels)), count
        )
    return written


def convert_mnist_pairs(images: str, labels: str, database: str, backend: str) -> int:
    """As many random pairs as there are images, each as two channels; the label says whether
    both show the same digit. Returns the number of records."""
    with ExitStack() as files:
        shape, pixels, labelled = _open_mnist(files, images, labels)
        all_pixels, classes = (
            _idx_entry(pixels, images, shape),
            _idx_entry(labelled, labels, shape[:1]),
        )
    words = random.bits(_PAIRS_KEY, 0, 0, 2 * shape[0]).astype(np.int64)
    pairs = (words % shape[0]).reshape(-1, 2)
    records = (
        (b"%08d" % i, encode_datum(all_pixels[pair], int(classes[pair[0]] == classes[pair[1]])))
        for i, pair in enumerate(pairs)
    )
    return write_all(database, backend, records, len(pairs))


def _open_mnist(
    files: ExitStack, images: str, labels: str
) -> tuple[tuple[int, ...], IO[bytes], IO[bytes]]:
    """The extents of the images, and both files at their first entries."""
    shape, pixels = _open_idx(files, images, 3)
    (classes,), labelled = _open_idx(files, labels, 1)
    if classes != shape[0]:
        raise DataError(
            f"{images} holds {shape[0]:,} images, {labels} {classes:,} labels; they do not belong "
            "together"
        )
    return shape, pixels, labelled


def _open_idx(files: ExitStack, path: str, dimensions: int) -> tuple[tuple[int, ...], IO[bytes]]:
    """The extents that an IDX file announces, and the file at its first entry."""
    try:
        file: IO[bytes] = files.enter_context(open(path, "rb"))  # noqa: SIM115
        size = os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {_reason(error)}") from None
    zipped = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    if zipped:
        file = cast(IO[bytes], files.enter_context(gzip.GzipFile(fileobj=file)))
    head = _unpacked(file, path, 4 + 4 * dimensions)
    if len(head) < 4 + 4 * dimensions or head[:4] != bytes((0, 0, 8, dimensions)):
        what = "images" if dimensions == 3 else "labels"
        raise DataError(f"{path}: is not an IDX file of MNIST {what} (its first bytes differ)")
    shape = tuple(int(n) for n in np.frombuffer(head, ">u4", dimensions, 4))
    announced = prod(shape)
    if min(shape) < 1 or prod(shape[1:]) > max_pixels():
        raise DataError(f"{path}: announces entries of {' x '.join(map(str, shape[1:]))} pixels")
    if not zipped and size - len(head) != announced:
        raise DataError(f"{path}: announces {announced:,} bytes but holds {size - len(head):,}")
    return shape, file


def _idx_entry(file: IO[bytes], path: str, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    data = _unpacked(file, path, prod(shape))
    if len(data) < prod(shape):
        raise DataError(f"{path}: ends before the last entry that it announces")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _all_of(
    records: Iterator[tuple[bytes, bytes]], *files: tuple[IO[bytes], str]
) -> Iterator[tuple[bytes, bytes]]:
    """The records; an error if a file goes on behind the last."""
    yield from records
    for file, path in files:
        if _unpacked(file, path, 1):
            raise DataError(f"{path}: goes on behind the last entry that it announces")


def _unpacked(file: IO[bytes], path: str, size: int) -> bytes:
    try:
        return file.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be unpacked: {error}") from None


def _read_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


_CIFAR_BYTES = 1 + 3 * 32 * 32
_CIFAR_FILE = 10_000  # images per file


def convert_cifar(folder: str, out: str, backend: str) -> list[tuple[str, int]]:
    """CIFAR-10's binary files as a training and a test database; returns names and sizes."""
    made = []
    for name, files in (
        ("train", [f"data_batch_{i}.bin" for i in range(1, 6)]),
        ("test", ["test_batch.bin"]),
    ):
        batches = [_read_cifar(os.path.join(folder, file)) for file in files]
        path = os.path.join(out, f"cifar10_{name}_{backend.lower()}")
        count = write_all(path, backend, _cifar_records(batches), sum(map(len, batches)))
        made.append((path, count))
    return made


def _read_cifar(path: str) -> NDArray[np.uint8]:
    data = _read_file(path)
    if not data or len(data) % _CIFAR_BYTES or len(data) > _CIFAR_FILE * _CIFAR_BYTES:
        raise DataError(
            f"{path}: has {len(data):,} bytes, not up to {_CIFAR_FILE:,} records of "
            f"{_CIFAR_BYTES:,}; unpack CIFAR-10's binary version again"
        )
    return np.frombuffer(data, np.uint8).reshape(-1, _CIFAR_BYTES)


def _cifar_records(batches: list[NDArray[np.uint8]]) -> Iterator[tuple[bytes, bytes]]:
    for file, batch in enumerate(batches):
        for i, record in enumerate(batch):
            image = record[1:].reshape(3, 32, 32)
            yield b"%05d" % (file * _CIFAR_FILE + i), encode_datum(image, int(record[0]))


def write_all(
    database: str, backend: str, records: Iterator[tuple[bytes, bytes]], total: int
) -> int:
    """Write records to a new database with a progress bar; returns how many there were."""
    count = 0
    name = os.path.basename(database)
    with DatabaseWriter(database, backend) as writer, progress(name, total) as advance:
        for key, value in records:
            writer.put(key, value)
            advance(1)
            count += 1
    return count
