"""Batch normalisation by the statistics of all leaves of a batch, wherever they are computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..backend.tensor import on_host
from .context import Context


class SyncedStatistics:
    """y = (x - mean) / sqrt(variance + eps) per channel of (samples, channels, pixels).

    Sums go along the canonical tree of leaves: first those of x, then those of squared distances
    from the mean, and in the backward pass those of dy and dy * y.
    """

    def __init__(self, context: Context, xp: Any, eps: float) -> None:
        self._context, self._xp, self._eps = context, xp, eps
        self.mean = self.variance = self._normal = self._scale = xp.empty(0)
        self.count = 0  # of numbers per channel, over all leaves

    def forward(self, x: Any) -> Any:
        self.count = x.shape[0] * x.shape[2] * self._context.leaves
        self.mean = self._sum(x) / np.float32(self.count)
        centred = x - self.mean[:, None]
        self.variance = self._sum(centred * centred) / np.float32(self.count)
        self._scale = 1 / self._xp.sqrt(self.variance + np.float32(self._eps))
        self._normal = centred * self._scale[:, None]
        return self._normal

    def backward(self, dy: Any) -> Any:
        """dx for the gradient of what `forward` returned."""
        both = self._xp.concatenate([_per_channel(dy), _per_channel(dy * self._normal)])
        first, second = self._over_leaves(both).reshape(2, -1, 1) / np.float32(self.count)
        return (dy - first - self._normal * second) * self._scale[:, None]

    @property
    def normal(self) -> Any:
        """What the last `forward` returned."""
        return self._normal

    def _sum(self, values: Any) -> Any:
        return self._over_leaves(_per_channel(values))

    def _over_leaves(self, values: Any) -> Any:
        lockstep, leaf = self._context.lockstep, self._context.leaf
        assert lockstep is not None
        return self._xp.asarray(lockstep.sum(leaf, on_host(values)))


def _per_channel(values: Any) -> Any:
    return values.sum(axis=(0, 2), dtype=np.float32)
