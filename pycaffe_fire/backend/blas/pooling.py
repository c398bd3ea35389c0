"""MAX and AVE pooling with Caffe's clipped windows, channels last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..blob import Blob
from ..kernels.pooling import max_backward_for
from ..kernels.rows import max_forward
from ..numpy.shifts import shifts
from ..plans import PoolingPlan, Window
from ..tensor import ChannelsLast
from ..windows import divisors
from .layouts import images, read, some, writing

if TYPE_CHECKING:
    from . import BlasBackend


class MaxPooling(PoolingPlan):
    """Remembers which kernel cell won, as a byte."""

    def __init__(self, backend: BlasBackend, x: Blob, y: Blob, window: Window) -> None:
        self.backend, self.x, self.y, self.window = backend, x, y, window
        self.sizes = (*x.shape[2:], *y.shape[2:])
        y.lay_out(ChannelsLast(y.shape))
        self._winners = np.empty((y.shape[0], *y.shape[2:], y.shape[1]), np.uint8)
        self._scatter, self._geometry = max_backward_for(x.shape, y.shape, window)
        backend.expect([max_forward], [self._scatter])

    def forward(self) -> None:
        win, x = self.window, read(self.x.value)
        with writing(self.y.value) as y:

            def run(first: int, stop: int) -> None:
                max_forward(
                    some(x, self.x, first, stop), some(y, self.y, first, stop),
                    self._winners[first:stop].reshape(-1, self.y.shape[1]), self.sizes,
                    (win.kernel, win.stride, win.pad),
                )  # fmt: skip

            self.backend.share(self.x.shape[0], run)

    def backward(self) -> None:
        dy = images(read(self.y.gradient), self.y)
        with writing(self.x.gradient) as rows:
            dx = images(rows, self.x)

            def run(first: int, stop: int) -> None:
                part = slice(first, stop)
                self._scatter(dy[part], self._winners[part], dx[part], *self._geometry)

            self.backend.share(self.x.shape[0], run)


class AveragePooling(PoolingPlan):
    """Sums over the cells of the window, for all images at once."""

    def __init__(self, x: Blob, y: Blob, window: Window, inside: bool) -> None:
        self.x, self.y, self.window = x, y, window
        counts = divisors(x.shape[2:], y.shape[2:], window, inside)
        self._divisors = counts.astype(np.float32)[:, :, None]
        y.lay_out(ChannelsLast(y.shape))

    def forward(self) -> None:
        image = images(read(self.x.value), self.x)
        with writing(self.y.value) as rows:
            y = images(rows, self.y)
            y[...] = 0
            for outputs, inputs in self._shifts():
                y[outputs] += image[inputs]
            y /= self._divisors

    def backward(self) -> None:
        slopes = images(read(self.y.gradient), self.y) / self._divisors
        with writing(self.x.gradient) as rows:
            dx = images(rows, self.x)
            dx[...] = 0
            for outputs, inputs in self._shifts():
                dx[inputs] += slopes[outputs]

    def _shifts(self) -> Iterator[tuple[Any, Any]]:
        for outputs, inputs in shifts(self.x.shape[2:], self.y.shape[2:], self.window):
            yield (*outputs, slice(None)), (*inputs, slice(None))
