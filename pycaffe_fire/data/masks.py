"""Images with a class for every pixel: two files per line of a list, "image mask"."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import DataError
from .bad_records import FAIL
from .image import FORMATS, Size, read_image
from .image_list import lines_of
from .order import Order
from .pixel_limit import check_pixels
from .resize import resize
from .source import Buffers, Floats, ImageSource, Sample
from .transformer import Transformer

NO_CLASS = 255  # of pixels that padding adds, as in DeepLab


class Pair(NamedTuple):
    """The paths of an image and of its mask; none: ""."""

    image: str
    mask: str


def read_pairs(path: str | os.PathLike[str], masks: bool) -> list[Pair]:
    """The lines of a list file; without `masks` one path each."""
    name = os.fspath(path)
    pairs = []
    for number, line in enumerate(lines_of(name), 1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 and (masks or len(words) != 1) or "\0" in line:
            raise DataError(
                f'{name}:{number}: expected "image mask", two paths without spaces, got '
                f"{line[:200]!r}"
            )
        pairs.append(Pair(words[0], words[1] if masks else ""))
    if not pairs:
        raise DataError(f'{name}: names no images; write one "image mask" per line')
    return pairs


def read_mask(path: str) -> NDArray[np.uint8]:
    """The classes of an image file (height, width): grey values, or the numbers of a palette."""
    try:
        with Image.open(path, formats=FORMATS) as file:
            if file.mode == "P":
                check_pixels(file.height, file.width, path)
                return np.array(file)
    except (OSError, ValueError, SyntaxError):
        pass  # told below
    grey: NDArray[np.uint8] = read_image(path, color=False)[0]
    return grey


class MaskSource(ImageSource):
    """Arrays of a batch: images, masks (N, 1, H, W), and the sizes (N, 1, 1, 2) of the images.

    Both are resized alike (masks to the nearest pixel) and then cropped and mirrored alike. What is
    smaller than the crop is padded below and on the right: images with their mean, masks with
    NO_CLASS. Without `masks`, these are NO_CLASS everywhere.
    """

    def __init__(
        self, list_file: str, root: str, color: bool, size: Size, transformer: Transformer,
        order: Order, masks: bool = True, policy: str = FAIL,
    ) -> None:  # fmt: skip
        self._list, self._root, self._color, self._size = list_file, root, color, size
        self._masks = masks
        self._pairs = read_pairs(list_file, masks)
        if transformer.augment:
            raise DataError(
                "transform_param: classes of pixels are cropped and mirrored along with images; "
                "other changes are not; resize by new_height and new_width"
            )
        super().__init__(transformer, order, policy=policy)

    def __len__(self) -> int:
        return len(self._pairs)

    def where(self, record: int) -> str:
        return f"{self._list}, image {self._root + self._pairs[record].image}"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [self.shape, (1, *self.shape[1:]), (1, 1, 2)]

    def read(self, record: int) -> Sample:
        return self._both(record)[0], 0

    def _both(self, record: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], tuple[int, int]]:
        """Image (C, H, W) and mask (H, W), resized and padded; and their size before padding."""
        pair = self._pairs[record]
        try:
            image = read_image(self._root + pair.image, self._color)
            mask = read_mask(self._root + pair.mask) if self._masks else None
        except DataError as error:
            raise DataError(f"{self._list}: {error}") from None
        if mask is None:
            mask = np.full(image.shape[1:], NO_CLASS, np.uint8)
        if mask.shape != image.shape[1:]:
            raise DataError(
                f"{self.where(record)}: is {image.shape[1]} x {image.shape[2]}, but its mask "
                f"{self._root + pair.mask} {mask.shape[0]} x {mask.shape[1]}"
            )
        size = self._size(*mask.shape)
        return *self._padded(resize(image, *size), _nearest(mask, *size)), size

    def _padded(
        self, image: NDArray[np.uint8], mask: NDArray[np.uint8]
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        crop = self._transform.crop or mask.shape
        below, right = (max(0, want - has) for want, has in zip(crop, mask.shape, strict=True))
        if not below and not right:
            return image, mask
        size = (mask.shape[0] + below, mask.shape[1] + right)
        check_pixels(*size, "transform_param: an image padded to crop_size")
        wide = np.empty((len(image), *size), np.uint8)
        means = np.rint(self._transform.mean_values or [0]).astype(np.uint8)
        wide[...] = means[:, None, None] if len(means) in (1, len(image)) else 0
        wide[:, : mask.shape[0], : mask.shape[1]] = image
        return wide, np.pad(mask, ((0, below), (0, right)), constant_values=NO_CLASS)

    def _found(self, sample: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8], tuple[int, int]]:
        record = int(self._order.records(range(sample, sample + 1), len(self))[0])
        candidates = ((record + i) % len(self) for i in range(len(self)))
        return self.bad.first_good(candidates, lambda number: self._fitting(number, sample))

    def _fitting(
        self, record: int, sample: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint8], tuple[int, int]]:
        image, mask, size = self._both(record)
        channels, height, width = image.shape
        shape = self._transform.output_shape((channels, height, width), self.where(record))
        if shape != self.shape and not self.varying:
            raise DataError(
                f"{self.where(record)}: has shape {shape}, the first record {self.shape}; "
                "make all images the same size, set crop_size, or use batch_size: 1"
            )
        if self._masks and self._classes:
            self._check_classes(mask, record)
        return image, mask, size

    def _check_classes(self, mask: NDArray[np.uint8], record: int) -> None:
        present = np.flatnonzero(np.bincount(mask.reshape(-1), minlength=256))
        for label in present.tolist():
            if label >= self._classes and label not in self._ignored:
                raise DataError(
                    f"{self._list}, mask {self._root + self._pairs[record].mask}: has the class "
                    f"{label}, outside the {self._classes} classes (0 to {self._classes - 1}) "
                    "there are; if it stands for no class, name it as ignore_label"
                )

    def _parts(self, samples: range) -> Iterator[tuple[NDArray[Any], NDArray[np.uint8], Any]]:
        """(image before the crop, mask after it, size) of each sample."""
        for sample in samples:
            image, mask, size = self._found(sample)
            top, left, turned = self._transform.place(image.shape, sample)
            high, wide = self._transform.crop or mask.shape
            mask = mask[top : top + high, left : left + wide]
            shown = (min(size[0], high), min(size[1], wide))
            yield image, mask[:, ::-1] if turned else mask, shown

    def fill(
        self, samples: range, data: Floats, label: Floats | None = None, sizes: Floats | None = None
    ) -> None:
        def images() -> Iterator[NDArray[Any]]:
            for i, (image, mask, size) in enumerate(self._parts(samples)):
                if label is not None:
                    label[i, 0] = mask
                if sizes is not None:
                    sizes[i, 0, 0] = size
                yield image

        self._transform(images(), samples, data)

    def fit(
        self, samples: range, buffers: Buffers, allocate: Callable[[tuple[int, ...]], Floats]
    ) -> tuple[Buffers, Buffers]:
        image, mask, size = next(iter(self._parts(samples)))
        kept, cut = [], []
        for buffer, shape in zip(
            buffers, ((1, len(image), *mask.shape), (1, 1, *mask.shape), (1, 1, 1, 2)), strict=False
        ):
            flat = buffer.reshape(-1)
            flat = flat if flat.size >= prod(shape) else allocate((prod(shape),))
            kept.append(flat)
            cut.append(flat[: prod(shape)].reshape(shape))
        self._transform([image], samples, cut[0])
        for array, value in zip(cut[1:], (mask, size), strict=False):
            array[...] = value
        return tuple(kept), tuple(cut)


def _nearest(mask: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """A mask resized by repeating or leaving out pixels."""
    if mask.shape == (height, width):
        return mask
    rows = np.arange(height) * mask.shape[0] // height
    columns = np.arange(width) * mask.shape[1] // width
    near: NDArray[np.uint8] = mask[rows[:, None], columns]
    return near
