"""Arrays as PNG files: images, planes of numbers side by side, maps over an image."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[Any]

MOST_TILES = 256
GAP = 1  # pixels between tiles
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


def planes_png(planes: Array, columns: int = 0) -> bytes:
    """Planes (count, height, width) or colour tiles (count, height, width, 3) in a grid."""
    planes = planes[:MOST_TILES]
    count, height, width = planes.shape[:3]
    columns = columns or max(1, round((count * height / max(1, width)) ** 0.5))
    rows = -(-count // columns)
    tiles = planes if planes.ndim == 4 else coloured(planes)
    sheet = np.full((rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3), 128, np.uint8)
    for i, tile in enumerate(tiles):
        top, left = i // columns * (height + GAP), i % columns * (width + GAP)
        sheet[top : top + height, left : left + width] = tile
    return png(enlarged(sheet, 480))


def filters_png(weights: Array) -> bytes:
    """A layer's weights: kernels as tiles, in colour if they see three channels; matrices whole."""
    if weights.ndim < 3:
        matrix = weights.reshape(-1, weights.shape[-1]) if weights.size else np.zeros((1, 1))
        step = max(1, -(-max(matrix.shape) // 800))
        return png(enlarged(coloured(matrix[::step, ::step]), 320))
    kernels = weights.reshape(-1, *weights.shape[-3:])
    if kernels.shape[1] == 3:
        return planes_png(stretched(kernels)[:, ::-1].transpose(0, 2, 3, 1))
    seen = min(kernels.shape[1], 16)
    planes = kernels[:, :seen].reshape(-1, *kernels.shape[2:])
    return planes_png(planes, seen if seen > 1 else 0)


def blob_png(blob: Array) -> bytes:
    """The first sample of a blob: its channels as planes, or its numbers as bars."""
    values = np.asarray(blob)
    sample = values[0] if values.ndim > 1 else values
    if sample.ndim == 3:
        return planes_png(sample)
    if sample.ndim == 2:
        return planes_png(sample[None])
    return bars_png(sample.reshape(-1)[:1024])


def bars_png(values: Array, height: int = 96) -> bytes:
    """Numbers as bars from zero."""
    values = np.nan_to_num(np.asarray(values, np.float64))
    low, high = min(0.0, float(values.min(initial=0))), max(0.0, float(values.max(initial=0)))
    scale = (height - 1) / (high - low) if high > low else 0.0
    rows = np.arange(height)[:, None]
    zero, ends = (high - 0.0) * scale, (high - values) * scale
    inside = (rows >= np.minimum(zero, ends)) & (rows <= np.maximum(zero, ends))
    ink, paper = np.array([218, 96, 96], np.uint8), np.array([24, 28, 48], np.uint8)
    pixels: Array = np.where(inside[..., None], ink, paper)
    return png(np.ascontiguousarray(pixels.repeat(max(1, 480 // max(1, len(values))), 1)))


def classes_png(classes: Array) -> bytes:
    """A map of class numbers, each with a colour of its own; class 0 is black."""
    numbers = np.asarray(classes, np.int64)
    hues = np.stack([numbers * step % 200 + 55 for step in (67, 131, 193)], -1)
    return png(np.where((numbers > 0)[..., None], hues, 0).astype(np.uint8))
