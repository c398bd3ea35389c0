"""Colour changes of 8-bit BGR images in OpenCV's arithmetic: linear ones, hue and saturation, and
other colour spaces."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]

_SHIFT = 12
_DIVISOR = np.maximum(np.arange(256), 1)
_SATURATION = np.rint((255 << _SHIFT) / _DIVISOR).astype(np.int32)
_HUE = np.rint((180 << _SHIFT) / (6.0 * _DIVISOR)).astype(np.int32)
# Which of (v, p, q, t) the blue, green and red of each sixth of the circle are.
_SECTORS = np.array([[1, 3, 0], [1, 0, 2], [3, 0, 1], [0, 2, 1], [0, 1, 3], [2, 1, 0]])

# Linear red, green and blue to XYZ, and the white of D65.
_XYZ = np.array(
    [
        [0.412453, 0.357580, 0.180423],
        [0.212671, 0.715160, 0.072169],
        [0.019334, 0.119193, 0.950227],
    ]
)
_WHITE = (0.950456, 1.0, 1.088754)


def linear(values: Pixels, factor: float, offset: float) -> Pixels:
    """values * factor + offset, rounded and kept within 0 to 255."""
    changed = values.astype(np.float32) * np.float32(factor) + np.float32(offset)
    return _bytes(changed)


def adjust_saturation(image: Pixels, factor: float) -> Pixels:
    hue, saturation, value = to_hsv(image)
    return _to_bgr(hue, linear(saturation, factor, 0.0), value)


def adjust_hue(image: Pixels, delta: float) -> Pixels:
    """Turn the hue by `delta`, 180 being the circle, cut off at its ends as the forks do."""
    hue, saturation, value = to_hsv(image)
    return _to_bgr(linear(hue, 1.0, delta), saturation, value)


def to_hsv(image: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    """Hue (180 being the circle), saturation and value."""
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


def gray(image: Pixels) -> Pixels:
    """The brightness of each pixel."""
    blue, green, red = image.astype(np.int32)
    mixed: Pixels = ((blue * 3735 + green * 19235 + red * 9798 + (1 << 14)) >> 15).astype(np.uint8)
    return mixed


def to_ycrcb(image: Pixels) -> tuple[Pixels, Pixels, Pixels]:
    """Brightness, and how much red and blue differ from it."""
    blue, green, red = image.astype(np.int32)
    y = _descale(blue * 1868 + green * 9617 + red * 4899)
    middle = 128 << 14
    cr, cb = _descale((red - y) * 11682 + middle), _descale((blue - y) * 9241 + middle)
    return _bytes(y), _bytes(cr), _bytes(cb)


def from_ycrcb(y: Pixels, cr: Pixels, cb: Pixels) -> Pixels:
    whole, red, blue = y.astype(np.int32), cr.astype(np.int32) - 128, cb.astype(np.int32) - 128
    planes = (
        whole + _descale(blue * 29049),
        whole + _descale(blue * -5636 + red * -11698),
        whole + _descale(red * 22987),
    )
    return _bytes(np.stack(planes))


def _descale(values: NDArray[np.int32]) -> NDArray[np.int32]:
    return (values + (1 << 13)) >> 14


def to_lab(image: Pixels) -> NDArray[np.float32]:
    """CIE L (0 to 100), a and b of sRGB colours, white being D65's."""
    value = image[::-1].astype(np.float64) / 255
    light = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    x, y, z = np.tensordot(_XYZ, light, 1) / np.array(_WHITE)[:, None, None]
    fx, fy, fz = (np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116) for t in (x, y, z))
    lightness = np.where(y > 0.008856, 116 * fy - 16, 903.3 * y)
    return np.stack((lightness, 500 * (fx - fy), 200 * (fy - fz))).astype(np.float32)


def _bytes(values: NDArray[Any]) -> Pixels:
    rounded: Pixels = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return rounded
