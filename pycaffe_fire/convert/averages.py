"""What the blobs of a BatchNorm layer mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def averages(blobs: Sequence[Array]) -> tuple[Array, Array]:
    """Mean and variance: sums, divided by their weight; 0 where that is 0, as in Caffe."""
    weight = float(blobs[2].reshape(-1)[0])
    factor = np.float32(1 / weight if weight else 0)
    return blobs[0].reshape(-1) * factor, blobs[1].reshape(-1) * factor
