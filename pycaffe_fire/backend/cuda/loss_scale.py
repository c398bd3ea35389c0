"""Dynamic loss scaling on the device: nothing waits to learn whether a gradient overflowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..plans import LossScale
from ..tensor import Array

if TYPE_CHECKING:
    from . import CudaBackend
    from .update import SkippableUpdate

PATIENCE = 2000  # sound iterations before the scale is doubled
MOST = 2.0**24


class DynamicScale(LossScale):
    """On overflow the update is skipped and the scale halved; see kernels/loss_scale.cu."""

    def __init__(self, backend: CudaBackend, first: float, update: SkippableUpdate) -> None:
        xp = backend.xp
        self._kernels = backend.kernels
        self._state = xp.asarray(np.array([first, 0, 0], np.float32))
        self._overflow = xp.zeros(1, np.int32)
        self._skip = xp.zeros(1, np.int32)
        self.patience = PATIENCE
        self._told = first
        update.skip_where(self._skip)

    @property
    def factor(self) -> Array:
        return self._state[0]

    def unscale(self, gradients: Array) -> None:
        size = gradients.size
        self._kernels["find_overflow"](size, gradients, self._overflow)
        self._kernels["unscale"](size, self._state, self._overflow, gradients)
        self._kernels["adjust_scale"](
            1, float(self.patience), MOST, self._state, self._overflow, self._skip
        )

    def state(self) -> list[float]:
        return [float(number) for number in self._state.get()]

    def news(self) -> str | None:
        scale, _, skipped = self.state()
        if scale == self._told:
            return None
        self._told = scale
        return f"Loss scale {scale:g}, {skipped:g} updates skipped so far"

    def restore(self, state: list[float]) -> None:
        self._state.set(np.array(state, np.float32))
