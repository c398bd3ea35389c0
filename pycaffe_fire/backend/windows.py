"""The arithmetic of sliding windows that all backends share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .plans import Window


def divisors(
    into: Sequence[int], out: Sequence[int], window: Window, inside: bool = False
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """How many cells each AVE window is divided by: Caffe counts padding, `inside` does not."""
    counts = np.ones((), np.float32)
    for size, outputs, kernel, stride, pad in zip(
        into, out, window.kernel, window.stride, window.pad, strict=True
    ):
        start = np.arange(outputs) * stride - pad
        cells = np.minimum(start + kernel, size + pad) - start
        if inside:
            cells = np.minimum(start + kernel, size) - np.maximum(start, 0)
        counts = np.multiply.outer(counts, cells.astype(np.float32))
    return counts
