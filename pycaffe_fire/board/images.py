"""Arrays as PNG files: images, tiles of numbers, maps over an image."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..report.grids import feature_grid, filter_grid

Array = NDArray[Any]

SMALL = 160  # pixels: smaller images are enlarged to about this
# From dark to bright, and readable without colours: stops of a map for single numbers.
STOPS = np.array([[13, 17, 43], [59, 47, 128], [139, 66, 138], [218, 96, 96], [250, 160, 78],
                  [252, 236, 160]], np.float64)  # fmt: skip


def png(pixels: Array) -> bytes:
    """uint8 pixels (height, width) or (height, width, 3)."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG", compress_level=3)
    return out.getvalue()


def stretched(values: Array) -> NDArray[np.uint8]:
    """Numbers of any range over the whole range of grey."""
    finite = np.nan_to_num(np.asarray(values, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(finite.min()), float(finite.max())
    grey: NDArray[np.uint8] = np.clip(
        (finite - low) * (255.0 / (high - low) if high > low else 0.0), 0, 255
    ).astype(np.uint8)
    return grey


def pixels_of(image: Array) -> NDArray[np.uint8]:
    """A (channels, height, width) image in Caffe's BGR order; of other channels the first."""
    image = image if image.dtype == np.uint8 else stretched(image)
    if len(image) >= 3:
        return np.ascontiguousarray(image[2::-1].transpose(1, 2, 0))
    return np.ascontiguousarray(image[0])


def image_png(image: Array) -> bytes:
    return png(enlarged(pixels_of(image)))


def enlarged(pixels: Array, size: int = SMALL) -> Array:
    """Small images with every pixel as a square."""
    times = max(1, size // max(pixels.shape[:2]))
    return pixels.repeat(times, 0).repeat(times, 1) if times > 1 else pixels


def coloured(values: Array) -> NDArray[np.uint8]:
    """Numbers as colours (..., 3)."""
    place = stretched(values).astype(np.float64) / 255 * (len(STOPS) - 1)
    low = np.minimum(place.astype(int), len(STOPS) - 2)
    part = (place - low)[..., None]
    mixed: NDArray[np.uint8] = (STOPS[low] * (1 - part) + STOPS[low + 1] * part).astype(np.uint8)
    return mixed


def filters_png(weights: Array) -> bytes:
    """A layer's weights as tiles."""
    return png(np.asarray(filter_grid(np.nan_to_num(np.asarray(weights, np.float32)))))


def blob_png(blob: Array) -> bytes:
    """The first sample of a blob, its channels as tiles."""
    values = np.nan_to_num(np.asarray(blob, np.float32))
    return png(np.asarray(feature_grid(values[0] if values.ndim > 1 else values)))


def classes_png(classes: Array) -> bytes:
    """A map of class numbers, each with a colour of its own; class 0 is black."""
    numbers = np.asarray(classes, np.int64)
    hues = np.stack([numbers * step % 200 + 55 for step in (67, 131, 193)], -1)
    return png(np.where((numbers > 0)[..., None], hues, 0).astype(np.uint8))
