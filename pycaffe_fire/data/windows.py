"""R-CNN's window files: regions of images, sampled as foreground and background.

A file repeats, for each image,

    # number
    path
    channels
    height
    width
    how many windows
    class overlap x1 y1 x2 y2      (one line per window)

A window is foreground if its overlap reaches fg_threshold, background (class 0) below
bg_threshold, and not used in between. Every batch holds the same share of foreground, at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..backend import random
from ..errors import DataError
from ..schema import read_blob
from ..schema.proto import TransformationParameter, WindowDataParameter
from .bad_records import FAIL, BadRecords
from .cache import Cache
from .image import read_bytes, read_image
from .pixel_limit import check_pixels
from .resize import resize

COLOURS = 3  # channels of every image that is read


class Window(NamedTuple):
    """One region; coordinates include both ends."""

    image: int
    label: int
    overlap: float
    x1: int
    y1: int
    x2: int
    y2: int


class WindowFile(NamedTuple):
    images: list[str]
    windows: list[Window]


def read_windows(path: str, root: str) -> WindowFile:
    """All images and windows of a window file."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = enumerate(file.read().splitlines(), 1)
    except OSError as error:
        raise DataError(f"{path}: the window file cannot be read: {error.strerror}") from None
    found = WindowFile([], [])
    here = (line for line in lines if line[1].strip())
    for number, line in here:
        if not line.lstrip().startswith("#"):
            raise DataError(f'{path}:{number}: expected "# number" of an image, got {line!r}')
        found = _read_image(path, root, number, here, found)
    if not found.windows:
        raise DataError(f"{path}: holds no windows")
    return found


def _read_image(
    path: str, root: str, number: int, lines: Iterator[tuple[int, str]], found: WindowFile
) -> WindowFile:
    """`found` with the windows of the image whose "#" line stood at `number`."""
    try:
        image = next(lines)[1].strip()
        channels, _, _, count = (int(next(lines)[1]) for _ in range(4))
        if "\0" in image:
            raise ValueError
        for _ in range(count):
            number, line = next(lines)
            label, overlap, *corners = line.split()
            x1, y1, x2, y2 = map(int, corners)
            window = Window(len(found.images), int(label), float(overlap), x1, y1, x2, y2)
            if not (0 <= x1 <= x2 < 2**31 and 0 <= y1 <= y2 < 2**31 and abs(window.label) < 2**31):
                raise ValueError
            found.windows.append(window)
    except (ValueError, StopIteration, RuntimeError):  # a generator turns StopIteration into it
        raise DataError(
            f"{path}:{number}: expected a path, channels, height, width, a count and as many lines "
            '"class overlap x1 y1 x2 y2"'
        ) from None
    if channels != COLOURS:
        raise DataError(
            f"{path}: says that {image} has {channels} channels; images are read in colour, so it "
            f"must be {COLOURS}"
        )
    return WindowFile([*found.images, root + image], found.windows)


class WindowSource:
    """Samples of a WindowData layer; `fill` may be called by several threads at once."""

    def __init__(
        self,
        param: WindowDataParameter,
        transform: TransformationParameter,
        key: int,
        batch: int,
        policy: str = FAIL,
        cache: Cache[bytes] | None = None,
    ) -> None:
        self._param, self._key, self._batch = param, key, batch
        self._crop = int(transform.crop_size)
        check_pixels(self._crop, self._crop, "transform_param: an image of crop_size")
        self._mirror, self._scale = bool(transform.mirror), np.float32(transform.scale)
        self._file = read_windows(param.source, param.root_folder)
        self._split(param)
        self._mean = self._read_mean(transform)
        self.shapes: list[tuple[int, ...]] = [
            (COLOURS, self._crop, self._crop),
            (),
        ]
        self.bad = BadRecords(policy)
        self._cache = cache

    def __len__(self) -> int:
        return len(self._file.windows)

    def _split(self, param: WindowDataParameter) -> None:
        windows = self._file.windows
        self._foreground = [w for w in windows if w.overlap >= param.fg_threshold]
        self._background = [
            w._replace(label=0)
            for w in windows
            if w.overlap < param.bg_threshold and w.overlap < param.fg_threshold
        ]
        for window in self._foreground:
            if window.label <= 0:
                raise DataError(
                    f"{param.source}: a foreground window of "
                    f"{self._file.images[window.image]} has class {window.label}; classes "
                    "start at 1"
                )
        if not 0 <= param.fg_fraction <= 1:
            raise DataError(f"fg_fraction is a share, from 0 to 1; got {param.fg_fraction:g}")
        self._foregrounds = int(np.float32(self._batch) * np.float32(param.fg_fraction))
        for what, count, have in (
            ("foreground", self._foregrounds, self._foreground),
            ("background", self._batch - self._foregrounds, self._background),
        ):
            if count and not have:
                raise DataError(
                    f"{param.source}: has no {what} windows, but a batch wants {count}; change "
                    "fg_fraction or the thresholds"
                )

    def _read_mean(self, transform: TransformationParameter) -> NDArray[np.float32]:
        """Of the crop: the middle of the mean image, or values per channel."""
        channels, crop = COLOURS, self._crop
        if transform.mean_file:
            blob: Any = np.asarray(read_blob(transform.mean_file), np.float32)
            mean: NDArray[np.float32] = blob.reshape(blob.shape[-3:])
            _, height, width = mean.shape
            if len(mean) != channels or height != width or height < crop:
                raise DataError(
                    f"{transform.mean_file}: has shape {mean.shape}; windows need a square mean of "
                    f"{channels} channels that is at least as large as crop_size {crop}"
                )
            edge = (height - crop) // 2
            return mean[:, edge : edge + crop, edge : edge + crop]
        values = np.array(list(transform.mean_value) or [0.0], np.float32)
        if len(values) not in (1, channels):
            raise DataError(
                f"{len(values)} mean_value for images of {channels} channels; give one, or one "
                "per channel"
            )
        return np.broadcast_to(values.reshape(-1, 1, 1), (channels, crop, crop))

    def fill(
        self, samples: range, data: NDArray[np.float32], label: NDArray[np.float32] | None = None
    ) -> None:
        data[...] = 0  # what lies outside an image stays at nothing, the mean included
        for i, sample in enumerate(samples):
            coin, choice = (int(word) for word in random.bits(self._key, 0, sample, 2))
            late = sample % self._batch >= self._batch - self._foregrounds
            pool = self._foreground if late else self._background
            first = choice * len(pool) >> 32
            turned = self._mirror and bool(coin & 1)
            target = data[i]

            def use(
                number: int, pool: list[Window] = pool, turned: bool = turned, out: Any = target
            ) -> int:
                window = pool[number]
                self._write(window, turned, out)
                return window.label

            candidates = ((first + n) % len(pool) for n in range(len(pool)))
            found = self.bad.first_good(candidates, use)
            if label is not None:
                label[i] = found

    def _write(self, window: Window, turned: bool, out: NDArray[np.float32]) -> None:
        image = self._image(self._file.images[window.image])
        part, top, left = cut_window(
            image, window, self._crop, self._param.context_pad,
            self._param.crop_mode == "square", turned,
            f"{self._param.source}, {self._file.images[window.image]}",
        )  # fmt: skip
        place = (slice(None), slice(top, top + part.shape[1]), slice(left, left + part.shape[2]))
        out[place] = (part.astype(np.float32) - self._mean[place]) * self._scale

    def _image(self, path: str) -> NDArray[np.uint8]:
        if self._cache is None:
            return read_image(path)
        return read_image(path, data=self._cache.get(path, lambda: read_bytes(path)))


def cut_window(
    image: NDArray[np.uint8],
    window: Window,
    crop: int,
    context_pad: int,
    square: bool,
    turned: bool,
    where: str,
) -> tuple[NDArray[np.uint8], int, int]:
    """The warped part of an image, and at which row and column of the crop it belongs.

    With a context pad or square mode the window is enlarged around its centre first; what then
    lies outside the image is cut off and left free in the crop.
    """
    x1, y1, x2, y2 = window.x1, window.y1, window.x2, window.y2
    _, height, width = image.shape
    size, top, left = (crop, crop), 0, 0
    if context_pad or square:
        scale = crop / (crop - 2 * context_pad)
        half_h, half_w = (y2 - y1 + 1) / 2, (x2 - x1 + 1) / 2
        center_x, center_y = x1 + half_w, y1 + half_h
        if square:
            half_h = half_w = max(half_h, half_w)
        x1, x2 = _round(center_x - half_w * scale), _round(center_x + half_w * scale)
        y1, y2 = _round(center_y - half_h * scale), _round(center_y + half_h * scale)
        scale_y, scale_x = crop / (y2 - y1 + 1), crop / (x2 - x1 + 1)
        before_x, before_y = max(0, -x1), max(0, -y1)
        behind_x, behind_y = max(0, x2 - width + 1), max(0, y2 - height + 1)
        x1, x2, y1, y2 = x1 + before_x, x2 - behind_x, y1 + before_y, y2 - behind_y
        top = _round(before_y * scale_y)
        left = _round((behind_x if turned else before_x) * scale_x)
        warped = _round((y2 - y1 + 1) * scale_y), _round((x2 - x1 + 1) * scale_x)
        size = min(warped[0], crop - top), min(warped[1], crop - left)
    if not (0 <= x1 <= x2 < width and 0 <= y1 <= y2 < height) or min(size) < 1:
        raise DataError(
            f"{where}: window {window.x1} {window.y1} {window.x2} {window.y2} lies outside the "
            f"image ({width} x {height})"
        )
    part = resize(image[:, y1 : y2 + 1, x1 : x2 + 1], *size)
    return part[:, :, ::-1] if turned else part, top, left


def _round(value: float) -> int:
    """Half away from zero, as C's round."""
    return int(np.copysign(np.floor(abs(value) + 0.5), value))
