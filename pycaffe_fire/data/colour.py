"""Colour changes of 8-bit BGR images in OpenCV's arithmetic: linear ones, hue and saturation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

_SHIFT = 12
_DIVISOR = np.maximum(np.arange(256), 1)
_SATURATION = np.rint((255 << _SHIFT) / _DIVISOR).astype(np.int32)
_HUE = np.rint((180 << _SHIFT) / (6.0 * _DIVISOR)).astype(np.int32)
# Which of (v, p, q, t) the blue, green and red of each sixth of the circle are.
_SECTORS = np.array([[1, 3, 0], [1, 0, 2], [3, 0, 1], [0, 2, 1], [0, 1, 3], [2, 1, 0]])


def linear(values: Pixels, factor: float, offset: float) -> Pixels:
    """values * factor + offset, rounded and kept within 0 to 255."""
    changed = values.astype(np.float32) * np.float32(factor) + np.float32(offset)
    return _bytes(changed)


def adjust_saturation(image: Pixels, factor: float) -> Pixels:
    hue, saturation, value = _to_hsv(image)
    return _to_bgr(hue, linear(saturation, factor, 0.0), value)


def adjust_hue(image: Pixels, delta: float) -> Pixels:
    """Turn the hue by `delta`, 180 being the circle, cut off at its ends as the forks do."""
    hue, saturation, value = _to_hsv(image)
    return _to_bgr(linear(hue, 1.0, delta), saturation, value)


def _to_hsv(image: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    blue, green, red = image.astype(np.int32)
    value = np.maximum(np.maximum(blue, green), red)
    spread = value - np.minimum(np.minimum(blue, green), red)
    half = 1 << (_SHIFT - 1)
    saturation = (spread * np.where(value > 0, _SATURATION[value], 0) + half) >> _SHIFT
    hue = np.where(
        value == red,
        green - blue,
        np.where(value == green, blue - red + 2 * spread, red - green + 4 * spread),
    )
    hue = (hue * np.where(spread > 0, _HUE[spread], 0) + half) >> _SHIFT
    hue = np.where(hue < 0, hue + 180, hue)
    return hue.astype(np.uint8), saturation.astype(np.uint8), value.astype(np.uint8)


def _to_bgr(hue: Pixels, saturation: Pixels, value: Pixels) -> Pixels:
    h = hue.astype(np.float32) * np.float32(6.0 / 180.0)
    s = saturation.astype(np.float32) * np.float32(1.0 / 255.0)
    v = value.astype(np.float32) * np.float32(1.0 / 255.0)
    sector = np.floor(h)
    f = h - sector
    parts = np.stack((v, v * (1 - s), v * (1 - s * f), v * (1 - s * (1 - f))))
    choice = _SECTORS[sector.astype(np.int64) % 6].transpose(2, 0, 1)
    mixed = np.take_along_axis(parts, choice, axis=0)
    return _bytes(mixed * np.float32(255.0))


def _bytes(values: NDArray[np.float32]) -> Pixels:
    rounded: Pixels = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return rounded
