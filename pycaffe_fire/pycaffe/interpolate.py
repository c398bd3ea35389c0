"""Resizing images of floats as pycaffe does, without the scikit-image and SciPy it calls.

1 or 3 channels   skimage.transform.resize(order=0 or 1, mode="constant"), as it was in Caffe's
                  days: pixel centres are mapped, nothing is smoothed before shrinking, and
                  beyond the border lies the image's smallest value
other counts      scipy.ndimage.zoom: the outermost pixels stay where they are
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

NEAREST, LINEAR = 0, 1


def resize_image(im: Any, new_dims: Sequence[int], interp_order: int = LINEAR) -> NDArray[Any]:
    """The image (height, width, channels) at `new_dims` (height, width), in float32."""
    image = np.asarray(im)
    height, width = (int(n) for n in new_dims)
    if image.ndim != 3 or not image.size or height < 1 or width < 1:
        raise DataError(
            f"cannot resize shape {image.shape} to {height} x {width}: images are height x width "
            f"x channels, and none of these may be 0"
        )
    if interp_order not in (NEAREST, LINEAR):
        raise DataError(f"interp_order must be 0 (nearest) or 1 (linear), got {interp_order}")
    values, least = image.astype(np.float64), 0.0
    if image.shape[2] in (1, 3):
        least, place = float(values.min()), _centres
    else:
        place = _corners
    values = values - least  # so that 0, which lies outside, is the smallest value
    for axis, new in enumerate((height, width)):
        at = place(image.shape[axis], new)
        values = np.moveaxis(_sample(np.moveaxis(values, axis, 0), at, interp_order), 0, axis)
    return (values + least).astype(np.float32)


def _centres(old: int, new: int) -> NDArray[Any]:
    """Where the centre of each new pixel falls among the old ones."""
    return (np.arange(new) + 0.5) * (old / new) - 0.5


def _corners(old: int, new: int) -> NDArray[Any]:
    """The same with first on first and last on last pixel."""
    return np.arange(new) * ((old - 1) / (new - 1) if new > 1 else 0.0)


def _sample(rows: NDArray[Any], at: NDArray[Any], order: int) -> NDArray[Any]:
    """Rows at fractional places; 0 beyond the first and last one."""
    if order == NEAREST:
        nearest: NDArray[Any] = rows[np.clip(np.floor(at + 0.5).astype(int), 0, len(rows) - 1)]
        return nearest
    below = np.floor(at).astype(int)
    part = (at - below).reshape(-1, *[1] * (rows.ndim - 1))
    edge = np.zeros_like(rows[:1])
    padded = np.concatenate([edge, rows, edge, edge])  # row i at i + 1
    mixed: NDArray[Any] = padded[below + 1] * (1 - part) + padded[below + 2] * part
    return mixed
