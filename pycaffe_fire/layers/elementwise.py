"""What neurons written as array code share: a function of each element, and its slope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..backend.blob import Blob
from .base import Neuron


class Elementwise(Neuron):
    """top = value(x); the bottom's gradient is the top's times slope(x, y).

    A subclass whose slope needs y alone says `needs_input = False`; the others keep a copy of x
    when they run in place. Results that are not finite are the user's to see, not to be warned of.
    """

    needs_input = True

    def value(self, x: Any) -> Any:
        raise NotImplementedError

    def slope(self, x: Any, y: Any) -> Any:
        raise NotImplementedError

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        x = bottom[0].data
        self._kept = x.copy() if self.needs_input and top[0] is bottom[0] else None
        with np.errstate(all="ignore"):
            top[0].data[...] = self.value(x)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if not propagate_down[0]:
            return
        x = bottom[0].data if self._kept is None else self._kept
        with np.errstate(all="ignore"):
            bottom[0].diff[...] = top[0].diff * self.slope(x, top[0].data)
