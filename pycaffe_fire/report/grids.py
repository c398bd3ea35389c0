"""Weights and activations as grids of small images, one tile for each filter or channel."""

from __future__ import annotations

import math
import os

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import FireError
from ..schema.files import replacing

GAP, MOST = 2, 64  # pixels between tiles; filters and channels that are shown
SMALLEST, LARGEST = 48, 256  # pixels of a tile's longer side
PAPER = 255
KINDS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".bmp": "BMP", ".gif": "GIF"}

Floats = NDArray[np.float32]


def filter_grid(weights: Floats) -> Image.Image:
    """A blob of weights: mid-grey is 0, white and black the largest size.

    Filters of three channels are colour tiles (of BGR), others have a row each with a tile for
    every channel; those of one channel fill a square. A matrix is one tile.
    """
    largest = float(np.abs(weights).max()) or 1.0
    levels = np.uint8(np.clip(np.rint(127.5 + 127.5 * weights / largest), 0, 255))
    if levels.ndim != 4:
        return _grid(levels.reshape(1, len(levels), -1), 1)
    filters, channels = levels.shape[:2]
    if channels == 3:
        return _grid(levels[:MOST, ::-1].transpose(0, 2, 3, 1), _square(min(filters, MOST)))
    shown = levels[:MOST, :MOST]
    columns = _square(len(shown)) if channels == 1 else shown.shape[1]
    return _grid(shown.reshape(-1, *shown.shape[2:]), columns)


def feature_grid(values: Floats) -> Image.Image:
    """One sample of a blob, a tile for each channel: black is the smallest number, white the
    largest. A vector is one tile, filled row by row."""
    low, high = float(values.min()), float(values.max())
    levels = np.uint8(np.rint((values - low) * (255.0 / ((high - low) or 1.0))))
    if levels.ndim == 3 and levels[0].size > 1:
        return _grid(levels[:MOST], _square(min(len(levels), MOST)))
    flat = levels.ravel()
    wide = _square(len(flat))
    padded = np.zeros(-(-len(flat) // wide) * wide, np.uint8)
    padded[: len(flat)] = flat
    return _grid(padded.reshape(1, -1, wide), 1)


def _square(count: int) -> int:
    return math.ceil(math.sqrt(count))


def _grid(tiles: NDArray[np.uint8], columns: int) -> Image.Image:
    """Tiles (number, height, width, and channels of colour) as one image."""
    longest = max(tiles.shape[1:3])
    times = max(1, -(-SMALLEST // longest)) if longest < LARGEST else 1
    if len(tiles) == 1:
        times = max(1, LARGEST // longest)
    tiles = tiles.repeat(times, axis=1).repeat(times, axis=2)
    height, width = tiles.shape[1] + GAP, tiles.shape[2] + GAP
    rows = -(-len(tiles) // columns)
    sheet = np.full((rows * height + GAP, columns * width + GAP, *tiles.shape[3:]), PAPER, np.uint8)
    for number, tile in enumerate(tiles):
        top, left = GAP + number // columns * height, GAP + number % columns * width
        sheet[top : top + height - GAP, left : left + width - GAP] = tile
    return Image.fromarray(sheet)


def check_grid_name(path: str) -> None:
    """Raise what would go wrong with `save_grid`, before a net runs for it."""
    if os.path.splitext(path)[1].lower() not in KINDS:
        raise FireError(f"{path}: the image's name must end in one of: {', '.join(KINDS)}")


def save_grid(image: Image.Image, path: str) -> None:
    with replacing(path, FireError) as temporary:
        image.save(temporary, KINDS[os.path.splitext(path)[1].lower()])
