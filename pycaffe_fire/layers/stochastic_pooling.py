"""STOCHASTIC pooling: draw one value of each window with a probability proportional to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend.blob import Blob
from ..backend.numpy.shifts import shifts
from ..backend.plans import PoolingPlan, Window
from ..backend.random import uniform_batch
from .base import Layer, is_train


class StochasticPooling(PoolingPlan):
    """While training, y = a drawn value; in TEST phase the expected one, sum of x^2 / sum of x.

    The values are taken to be none negative, as after a ReLU.
    """

    def __init__(self, layer: Layer, x: Blob, y: Blob, window: Window) -> None:
        self.layer, self.xp, self.x, self.y = layer, layer.xp, x, y
        self._shifts = shifts(x.shape[2:], y.shape[2:], window)

    def forward(self) -> None:
        xp, x, y = self.xp, self.x.data, self.y.data
        cells = xp.zeros((len(self._shifts), *y.shape), y.dtype)
        for cell, (outputs, inputs) in zip(cells, self._shifts, strict=True):
            cell[outputs] = x[inputs]
        if is_train(self.layer.phase):
            sums = xp.cumsum(cells, axis=0)
            self._winner = xp.argmax(sums >= self._draw() * sums[-1], axis=0)
            y[...] = xp.take_along_axis(cells, self._winner[None], axis=0)[0]
        else:
            total = cells.sum(axis=0)
            self._total = xp.where(total > 0, total, 1)
            y[...] = xp.where(total > 0, (cells * cells).sum(axis=0) / self._total, 0)

    def _draw(self) -> Any:
        """One number in [0, 1) for each output."""
        draw = self.layer.draw(self.y.num)
        out = np.empty((self.y.num, self.y.count // max(self.y.num, 1)), np.float32)
        if out.size:
            uniform_batch(draw.key, draw.step, draw.first_sample, *out.shape, out)
        return self.xp.asarray(out.reshape(self.y.shape))

    def backward(self) -> None:
        xp, x, dx, y, dy = self.xp, self.x.data, self.x.diff, self.y.data, self.y.diff
        dx[...] = 0
        for cell, (outputs, inputs) in enumerate(self._shifts):
            if is_train(self.layer.phase):
                dx[inputs] += xp.where(self._winner[outputs] == cell, dy[outputs], 0)
            else:
                slope = (2 * x[inputs] - y[outputs]) / self._total[outputs]
                dx[inputs] += dy[outputs] * slope
