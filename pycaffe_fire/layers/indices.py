"""Floats that stand for integers: class labels, sample numbers, places in a blob."""

from __future__ import annotations

from typing import Any

import numpy as np

NOT_AN_INDEX = -(2**62)  # outside every range that a layer accepts, and exact as a float
_BEYOND = 2.0**31  # Caffe casts to int


def truncated(xp: Any, values: Any) -> Any:
    """Return `values` as int64, truncated as Caffe's casts do.

    NaN, infinity and numbers beyond a 32-bit int become NOT_AN_INDEX: NumPy's own cast gives an
    arbitrary integer for them. A layer then refuses them with the check of its range, and shows
    the value with `number_text`.
    """
    fits = xp.abs(values) < _BEYOND  # False for NaN
    return xp.where(fits, values, values.dtype.type(NOT_AN_INDEX)).astype(np.int64)


def number_text(value: Any) -> str:
    """Return a value as users write it: `7`, `0.5`, `1e+30`, `nan`."""
    number = float(value)
    return str(int(number)) if abs(number) < _BEYOND and number % 1 == 0 else f"{number:g}"
