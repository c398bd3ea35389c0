"""Resizing 8-bit images to the pixels that OpenCV's cv::resize gives, as Caffe's tools use it.

    linear, cubic, lanczos   11-bit coefficients, rows first, then columns, in integers
    area                     the mean over the covered pixels, rounded half to even
    nearest                  the pixel at floor(i * scale)

Images are (channels, height, width) views; a halved image is the mean of 2 x 2 pixels in
`linear` too, as there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.cpu import library
from ..errors import DataError
from .kernels import Resize
from .pixel_limit import check_pixels

NEAREST, LINEAR, CUBIC, AREA, LANCZOS = "nearest", "linear", "cubic", "area", "lanczos"
_UNIT = np.float32(2048.0)
_A = np.float32(-0.75)  # of the cubic

Table = tuple[NDArray[np.int64], NDArray[np.int32]]


def resize(
    image: NDArray[np.uint8], height: int, width: int, method: str = LINEAR
) -> NDArray[np.uint8]:
    """The image at `height` x `width`."""
    if image.dtype != np.uint8:
        raise DataError(f"only 8-bit images can be resized, not {image.dtype}")
    _, old_height, old_width = image.shape
    if (height, width) == (old_height, old_width):
        return image
    check_pixels(height, width, "a resized image")
    shrinks = height <= old_height and width <= old_width
    if method == LINEAR and (2 * height, 2 * width) == (old_height, old_width):
        method = AREA
    if method == NEAREST:
        return image[:, _nearest(old_height, height)[:, None], _nearest(old_width, width)]
    if method == AREA and shrinks:
        return _resize_area(image, height, width)
    make = {LINEAR: _linear, CUBIC: _cubic, AREA: _enlarging_area, LANCZOS: _lanczos}[method]
    columns, across = make(old_width, width, True)
    rows, down = make(old_height, height, False)
    out = np.empty((image.shape[0], height, width), np.uint8)
    separable = _separable if library.available() else _separable_numpy
    separable(image, columns, across, rows, down, out)
    return out


def _positions(old: int, new: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Where the centre of each new pixel falls: whole part and fraction."""
    scale = 1.0 / (new / old)
    at = ((np.arange(new) + 0.5) * scale - 0.5).astype(np.float32)
    whole = np.floor(at)
    return whole.astype(np.int64), at - whole


def _table(
    whole: NDArray[np.int64], first: int, weights: list[NDArray[np.float32]], old: int
) -> Table:
    taps = whole[:, None] + np.arange(first, first + len(weights))
    fixed = np.rint(np.stack(weights, axis=1) * _UNIT).astype(np.int32)
    return np.clip(taps, 0, old - 1), fixed


def _linear(old: int, new: int, clamp: bool) -> Table:
    whole, part = _positions(old, new)
    if clamp:  # along rows the edge pixel counts alone, along columns it is repeated
        part = np.where((whole < 0) | (whole >= old - 1), np.float32(0), part)
        whole = np.clip(whole, 0, old - 1)
    return _table(whole, 0, [1 - part, part], old)


def _enlarging_area(old: int, new: int, clamp: bool) -> Table:
    inverse = new / old
    i = np.arange(new)
    whole = np.floor(i * (1.0 / inverse)).astype(np.int64)
    part = ((i + 1) - (whole + 1) * inverse).astype(np.float32)
    part = np.where(part <= 0, np.float32(0), part - np.floor(part))
    if clamp:
        part = np.where(whole >= old - 1, np.float32(0), part)
    return _table(whole, 0, [1 - part, part], old)


def _cubic(old: int, new: int, clamp: bool) -> Table:
    whole, x = _positions(old, new)
    y = x + 1
    z = 1 - x
    first = ((_A * y - 5 * _A) * y + 8 * _A) * y - 4 * _A
    second = ((_A + 2) * x - (_A + 3)) * x * x + 1
    third = ((_A + 2) * z - (_A + 3)) * z * z + 1
    return _table(whole, -1, [first, second, third, 1 - first - second - third], old)


def _lanczos(old: int, new: int, clamp: bool) -> Table:
    """Eight taps of sinc(t) sinc(t / 4), brought to a sum of 1."""
    whole, x = _positions(old, new)
    t = (x[:, None] + np.float32(3) - np.arange(8, dtype=np.float32)).astype(np.float64)
    weights = (np.sinc(t) * np.sinc(t / 4)).astype(np.float32)
    weights = weights / weights.sum(axis=1, keepdims=True)
    return _table(whole, -3, list(weights.T), old)


def _nearest(old: int, new: int) -> NDArray[np.int64]:
    at: NDArray[np.int64] = np.floor(np.arange(new) * (1.0 / (new / old))).astype(np.int64)
    return np.minimum(at, old - 1)


def _separable(
    image: NDArray[np.uint8],
    columns: NDArray[np.int64],
    across: NDArray[np.int32],
    rows: NDArray[np.int64],
    down: NDArray[np.int32],
    out: NDArray[np.uint8],
) -> None:
    channel, row, column = image.strides
    channels, height, width = out.shape
    Resize(
        threads=1, image=image.__array_interface__["data"][0], channel_stride=channel,
        row_stride=row, column_stride=column, columns=columns, across=across, rows=rows, down=down,
        out=out, channels=channels, height=height, width=width, old_height=image.shape[1],
        old_width=image.shape[2], taps=columns.shape[1],
    ).run()  # fmt: skip


def _separable_numpy(
    image: NDArray[np.uint8],
    columns: NDArray[np.int64],
    across: NDArray[np.int32],
    rows: NDArray[np.int64],
    down: NDArray[np.int32],
    out: NDArray[np.uint8],
) -> None:
    taps = range(columns.shape[1])
    lines = sum(image[:, :, columns[:, k]].astype(np.int32) * across[:, k] for k in taps)
    lines = np.asarray(lines, np.int32)
    weight = down[:, :, None]
    if len(taps) == 2:
        parts = [(weight[:, k] * (lines[:, rows[:, k]] >> 4)) >> 16 for k in taps]
        out[...] = (parts[0] + parts[1] + 2) >> 2
    else:
        total = sum(weight[:, k] * lines[:, rows[:, k]] for k in taps)
        out[...] = np.clip((np.asarray(total) + (1 << 21)) >> 22, 0, 255)


def _resize_area(image: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    channels, old_height, old_width = image.shape
    if old_height % height == 0 and old_width % width == 0:
        down, right = old_height // height, old_width // width
        blocks = image.reshape(channels, height, down, width, right)
        total = blocks.sum(axis=(2, 4), dtype=np.int32)
        mean: NDArray[Any]
        if (down, right) == (2, 2):
            mean = (total + 2) >> 2
        else:
            mean = total.astype(np.float32) * np.float32(1.0 / (down * right))
    else:
        rows, columns = _shares(old_height, height), _shares(old_width, width)
        mean = rows @ (image.astype(np.float32) @ columns.T)
    out: NDArray[np.uint8] = np.clip(np.rint(mean), 0, 255).astype(np.uint8)
    return out


def _shares(old: int, new: int) -> NDArray[np.float32]:
    """(new, old): the share of each old pixel in each new one."""
    scale = old / new
    ends = np.minimum(np.arange(1, new + 1) * scale, old)
    starts = np.arange(new) * scale
    pixel = np.arange(old)
    covered = np.minimum(ends[:, None], pixel + 1) - np.maximum(starts[:, None], pixel)
    covered = np.where(covered > 1e-3, covered, 0)  # slivers do not count, as in OpenCV
    shares: NDArray[np.float32] = covered / np.minimum(scale, old - starts)[:, None]
    return shares.astype(np.float32)
