"""What convert_annoset makes: databases of AnnotatedDatum records from images and annotations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..errors import DataError
from .annotation import encode_annotated
from .annotation_files import READERS, read_label_map
from .convert import ImageSet, Listed
from .image import read_image
from .image_list import lines_of, read_list

CLASSIFICATION, DETECTION = "classification", "detection"


class Pair(NamedTuple):
    """A line of a list for detection."""

    path: str
    annotation: str
    where: str


@dataclass
class AnnotatedSet(ImageSet):
    """What convert_annoset is asked for; fields are its flags."""

    anno_type: str = CLASSIFICATION
    label_type: str = "xml"
    label_map_file: str = ""
    check_label: bool = False
    min_dim: int = 0
    max_dim: int = 0

    def convert(self) -> tuple[int, int]:
        self._labels: dict[str, int] = {}
        if self.anno_type == DETECTION and (self.label_map_file or self.label_type != "txt"):
            if not self.label_map_file:
                raise DataError(
                    f"annotations as {self.label_type} name classes: give --label_map_file"
                )
            self._labels = read_label_map(self.label_map_file, self.check_label)
        return super().convert()

    def _entries(self) -> list[Listed]:
        if self.anno_type == CLASSIFICATION:
            return [*read_list(self.list_file)]
        return [*_read_pairs(self.list_file)]

    def _converted(self, entry: Listed) -> tuple[bytes, int]:
        if not isinstance(entry, Pair):
            datum, size = super()._converted(entry)
            return encode_annotated(datum, None), size
        image = self.root + entry.path
        try:
            datum, size = self._datum(image, None)
            height, width = read_image(image).shape[1:]
            read = READERS[self.label_type]
            objects = read(self.root + entry.annotation, self._labels, height, width)
        except DataError as error:
            raise DataError(f"{entry.where}: {error}") from None
        return encode_annotated(datum, objects), size

    def _resizes(self) -> bool:
        return bool(self.min_dim or self.max_dim) or super()._resizes()

    def _size(self, height: int, width: int) -> tuple[int, int]:
        """Smaller images are enlarged to min_dim, then larger ones shrunk to max_dim."""
        if not self.min_dim and not self.max_dim:
            return super()._size(height, width)
        scale = max(1.0, self.min_dim / min(height, width))
        if self.max_dim and int(scale * max(height, width)) > self.max_dim:
            scale = self.max_dim / max(height, width)
        return max(1, round(height * scale)), max(1, round(width * scale))


def _read_pairs(path: str) -> list[Pair]:
    pairs = []
    for number, line in enumerate(lines_of(path), 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2:
            raise DataError(
                f'{path}:{number}: expected "image annotation", got {line[:200]!r}; neither may '
                "contain spaces"
            )
        pairs.append(Pair(words[0], words[1], f"{path}:{number}"))
    if not pairs:
        raise DataError(f'{path}: names no images; write one "image annotation" per line')
    return pairs
