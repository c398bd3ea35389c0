"""Memory that plans hold between their passes: counted when planned, taken when used."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tensor import Array


class Kept:
    """Call it for the memory."""

    def __init__(self, xp: Any, elements: int, dtype: Any) -> None:
        self._xp, self._elements, self._dtype = xp, elements, np.dtype(dtype)
        self._array: Array | None = None

    @property
    def nbytes(self) -> int:
        return int(self._elements * self._dtype.itemsize)

    def __call__(self) -> Array:
        if self._array is None:
            self._array = self._xp.empty(self._elements, self._dtype)
        return self._array
