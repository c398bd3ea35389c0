"""Image files named in a list, one "path label" per line, as ImageData and convert_imageset."""

from __future__ import annotations

import logging
import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .bad_records import FAIL
from .cache import Cache
from .image import FAST_JPEG, Jpeg, Size, plain_jpeg, read_bytes, read_resized
from .order import Order
from .source import ImageSource, Sample
from .transformer import Transformer

log = logging.getLogger("pycaffe_fire")


class Entry(NamedTuple):
    """One line of a list."""

    path: str
    label: int


def lines_of(name: str) -> list[str]:
    """The lines of a list file."""
    try:
        with open(name, encoding="utf-8", errors="surrogateescape") as file:
            return file.read().split("\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{name}: the list of images cannot be read: {reason}") from None


def read_list(path: str | os.PathLike[str]) -> list[Entry]:
    """The entries of a list file; the label is what follows the last space of a line."""
    name = os.fspath(path)
    entries = []
    for number, line in enumerate(lines_of(name), 1):
        if not line.strip():
            continue
        file_name, _, label = line.rstrip().rpartition(" ")
        try:
            entry = Entry(file_name.rstrip(), int(label))
        except ValueError:
            entry = Entry("", 0)
        if not entry.path or "\0" in entry.path or not -(2**31) <= entry.label < 2**31:
            raise DataError(
                f'{name}:{number}: expected "path label", got {line[:200]!r}; the label is a whole '
                "number of at most 31 bits"
            )
        entries.append(entry)
    if not entries:
        raise DataError(f'{name}: names no images; write one "path label" per line')
    return entries


class ImageListSource(ImageSource):
    """Images of a list; `size` maps their (height, width) to the one they are resized to.

    With a cache, resized images stay in memory once they were read.
    """

    def __init__(
        self,
        list_file: str,
        root: str,
        color: bool,
        size: Size,
        transformer: Transformer,
        order: Order,
        classes: int = 0,
        cache: Cache[NDArray[np.uint8]] | None = None,
        policy: str = FAIL,
    ) -> None:
        self._list = list_file
        self._entries = read_list(list_file)
        self._root, self._color, self._size = root, color, size
        self._cache = cache
        if os.environ.get(FAST_JPEG):
            log.info("%s: large JPEGs are decoded at a fraction of their size", list_file)
        super().__init__(transformer, order, classes, policy)

    def __len__(self) -> int:
        return len(self._entries)

    def where(self, record: int) -> str:
        return f"{self._list}, image {self._root + self._entries[record].path}"

    def read(self, record: int) -> Sample:
        label = self._entries[record].label
        if self._cache is None:
            return self._image(record), label
        return self._cache.get(record, lambda: np.ascontiguousarray(self._image(record))), label

    def jpeg(self, record: int) -> Jpeg | None:
        if self._cache is not None:
            return None
        path, label = self._entries[record]
        data = read_bytes(self._root + path)
        found = plain_jpeg(data, label, self._color, not self._color, upright=True)
        if found is None or self._size(*found.shape[1:]) != found.shape[1:]:
            return None
        return found

    def _image(self, record: int) -> NDArray[np.uint8]:
        try:
            return read_resized(self._root + self._entries[record].path, self._color, self._size)
        except DataError as error:
            raise DataError(f"{self._list}: {error}") from None


def size_rule(
    height: int, width: int, short_side: int = 0, least: tuple[int, int] = (0, 0)
) -> Size:
    """How big images become: as given, by the shorter side, at least so big, or as they are."""

    def size(old_height: int, old_width: int) -> tuple[int, int]:
        if height and width:
            return height, width
        scale = 1.0
        if short_side:
            scale = short_side / min(old_height, old_width)
        elif least[0] > old_height or least[1] > old_width:
            scale = max(least[0] / old_height, least[1] / old_width)
        return max(least[0], round(old_height * scale)), max(least[1], round(old_width * scale))

    return size
