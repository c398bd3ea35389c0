"""The arithmetic of sliding windows that all backends share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Window


def divisors(
    into: Sequence[int], out: Sequence[int], window: Window
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """How many cells, padding included, Caffe divides each AVE window by."""
    counts = np.ones((), np.float32)
    for size, outputs, kernel, stride, pad in zip(
        into, out, window.kernel, window.stride, window.pad, strict=True
    ):
        start = np.arange(outputs) * stride - pad
        cells = np.minimum(start + kernel, size + pad) - start
        counts = np.multiply.outer(counts, cells.astype(np.float32))
    return counts
