"""SSD's noise_param: grey, blurred, equalised, compressed, eroded, posterised, inverted and spotted
images, and other colour spaces, in OpenCV's arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..schema.proto import NoiseParameter
from . import colour
from .batch_sampler import Chooser
from .image import decode_image, encode_image

Pixels = NDArray[np.uint8]
Image = NDArray[Any]

_LEVEL = 64  # of posterize
_CLIP = 4  # of clahe: how far above the mean a grey level may rise
_TILES = 8  # of clahe, each way


def check_noise(param: NoiseParameter, where: str) -> None:
    pepper = param.saltpepper_param
    if param.saltpepper and not (pepper.value and 0 <= pepper.fraction <= 1):
        raise DataError(
            f"{where}: saltpepper needs saltpepper_param with a value and a fraction of 0 to 1"
        )
    if param.jpeg > 100:
        raise DataError(f"{where}: jpeg is a quality of at most 100, got {param.jpeg:g}")


def add_noise(image: Pixels, param: NoiseParameter, dice: Chooser) -> Image:
    """The image with all the noise that the parameter asks for."""
    if param.decolorize:
        image = np.repeat(colour.gray(_in_colour(image, "decolorize"))[None], 3, axis=0)
    if param.gauss_blur:
        image = _blur(image)
    if param.hist_eq:
        image = _on_brightness(image, _equalise)
    if param.clahe:
        image = _on_brightness(image, _equalise_tiles)
    if param.jpeg > 0:
        image = _in_colour(image, "jpeg") if len(image) != 1 else image
        packed = encode_image(np.ascontiguousarray(image), "jpg", "noise_param", int(param.jpeg))
        image = decode_image(packed, "noise_param", force_color=True).copy()
    if param.erode:
        image = _erode(image)
    if param.posterize:
        image = image // _LEVEL * _LEVEL + _LEVEL // 2
    if param.inverse:
        image = 255 - image
    if param.saltpepper:
        image = _spots(image, param, dice)
    if param.convert_to_hsv:
        image = np.stack(colour.to_hsv(_in_colour(image, "convert_to_hsv")))
    if param.convert_to_lab:
        return colour.to_lab(_in_colour(image, "convert_to_lab"))
    return image


def _in_colour(image: Pixels, what: str) -> Pixels:
    if len(image) != 3:
        raise DataError(f"noise_param: {what} needs images of 3 channels, got {len(image)}")
    return image


def _blur(image: Pixels) -> Pixels:
    """Gauss's bell of sigma 1.5 over 7 x 7 pixels, mirrored at the border."""
    weights = np.exp(-(np.arange(-3, 4) ** 2) / (2 * 1.5**2))
    weights /= weights.sum()
    value = image.astype(np.float64)
    for axis in (1, 2):
        wide = np.pad(value, [(3, 3) if a == axis else (0, 0) for a in range(3)], mode="reflect")
        size = value.shape[axis]
        parts = [wide.take(range(k, k + size), axis) * weights[k] for k in range(7)]
        value = np.sum(parts, axis=0)
    blurred: Pixels = np.clip(np.rint(value), 0, 255).astype(np.uint8)
    return blurred


def _on_brightness(image: Pixels, change: Callable[[Pixels], Pixels]) -> Pixels:
    """Change a grey image, or the brightness of one in colour."""
    if len(image) == 1:
        return change(image[0])[None]
    y, cr, cb = colour.to_ycrcb(_in_colour(image, "hist_eq"))
    return colour.from_ycrcb(change(y), cr, cb)


def _equalise(plane: Pixels) -> Pixels:
    """Every grey level becomes about as frequent as the others."""
    counts = np.bincount(plane.ravel(), minlength=256)
    first = int(np.flatnonzero(counts)[0])
    if counts[first] == plane.size:
        return plane
    scale = np.float32(255) / np.float32(plane.size - counts[first])
    below = np.cumsum(counts) - counts[first]
    table = np.rint(np.maximum(below, 0).astype(np.float32) * scale)
    equal: Pixels = np.clip(table, 0, 255).astype(np.uint8)[plane]
    return equal


def _equalise_tiles(plane: Pixels) -> Pixels:
    """The same in 8 x 8 tiles with limited contrast, and smooth between their centres."""
    height, width = plane.shape
    wide = plane
    if height % _TILES or width % _TILES:
        more = [(0, _TILES - size % _TILES) for size in plane.shape]
        wide = np.pad(plane, more, mode="reflect")
    high, broad = wide.shape[0] // _TILES, wide.shape[1] // _TILES
    tiles = wide.reshape(_TILES, high, _TILES, broad).swapaxes(1, 2).reshape(_TILES**2, -1)
    tables = np.stack([_limited_table(tile) for tile in tiles]).reshape(_TILES, _TILES, 256)
    above, under, down = _neighbours(height, high)
    left, right, across = _neighbours(width, broad)
    rows, columns, a, b = above[:, None], left[None], down[:, None], across[None]
    upper = tables[rows, columns, plane] * (1 - b) + tables[rows, right[None], plane] * b
    rows = under[:, None]
    lower = tables[rows, columns, plane] * (1 - b) + tables[rows, right[None], plane] * b
    mixed: Pixels = np.clip(np.rint(upper * (1 - a) + lower * a), 0, 255).astype(np.uint8)
    return mixed


def _limited_table(tile: Pixels) -> NDArray[np.float32]:
    counts = np.bincount(tile, minlength=256)
    limit = max(_CLIP * tile.size // 256, 1)
    excess = int(np.maximum(counts - limit, 0).sum())
    counts = np.minimum(counts, limit) + excess // 256
    left = excess % 256
    if left:
        counts[:: max(256 // left, 1)][:left] += 1
    scale = np.float32(255) / np.float32(tile.size)
    table: NDArray[np.float32] = np.rint(np.cumsum(counts).astype(np.float32) * scale)
    return np.clip(table, 0, 255)


def _neighbours(size: int, tile: int) -> tuple[Any, Any, NDArray[np.float32]]:
    """The tiles whose centres lie before and after each pixel, and how far it is from the first."""
    at = np.arange(size, dtype=np.float32) * np.float32(1 / tile) - np.float32(0.5)
    before = np.floor(at).astype(np.int64)
    share = (at - before).astype(np.float32)
    return np.maximum(before, 0), np.minimum(before + 1, _TILES - 1), share


def _erode(image: Pixels) -> Pixels:
    """The darkest of each pixel and its four neighbours."""
    wide = np.pad(image, ((0, 0), (1, 1), (1, 1)), mode="edge")
    height, width = image.shape[1:]
    near = [(1, 1), (0, 1), (2, 1), (1, 0), (1, 2)]
    darkest: Pixels = np.min([wide[:, y : y + height, x : x + width] for y, x in near], axis=0)
    return darkest


def _spots(image: Pixels, param: NoiseParameter, dice: Chooser) -> Pixels:
    """A share of the pixels, drawn at random, has one given colour."""
    pepper, (channels, height, width) = param.saltpepper_param, image.shape
    if len(pepper.value) not in (1, channels):
        raise DataError(
            f"saltpepper_param: {len(pepper.value)} value for images of {channels} channels; give "
            "one, or one per channel"
        )
    spotted: Pixels = image.copy()
    value = np.array([int(v) % 256 for v in pepper.value], np.uint8)
    for _ in range(int(np.float32(pepper.fraction) * width * height)):
        column, row = dice.below(width), dice.below(height)
        spotted[:, row, column] = value
    return spotted
