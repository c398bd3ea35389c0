"""Histograms of weights, gradients and updates, taken now and then while a run goes on.

They look at a sample of each parameter, at iterations that are displayed anyway, and so seldom
that a run's time does not show them.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backend.tensor import Array, on_host
from ..net.parameters import Parameter, Parameters
from .events import Histogram, Histograms, ParameterHistograms

BINS = 32
SAMPLE = 4096  # elements of a parameter that are looked at, at most
MOST = 50  # looks in a run that goes to max_iter
SHARE = 1 / 200  # of the run's time that looking may take

Floats = NDArray[np.float32]


class HistogramSampler:
    """Looks at the flat buffers before and after an update; parameters that do not learn have no
    histograms."""

    def __init__(self, parameters: Parameters, max_iter: int) -> None:
        self._parameters = parameters
        self._learning = [(i, p) for i, p in enumerate(parameters.items) if p.lr_mult]
        self._spacing = max(1, max_iter // MOST)
        self._next_iteration = 0
        self._next_time = 0.0

    def due(self, iteration: int) -> bool:
        """Is it time for another look?"""
        return iteration >= self._next_iteration and time.perf_counter() >= self._next_time

    def before(self) -> list[Floats]:
        """The weights before an update, to be given to `after`."""
        return self._samples(self._parameters.weights)

    def after(
        self, iteration: int, before: list[Floats], gradients: Array, scale: float
    ) -> Histograms:
        """What the update made of them; gradients count times `scale`."""
        began = time.perf_counter()
        weights, slopes = self._samples(self._parameters.weights), self._samples(gradients)
        rows = [
            ParameterHistograms(
                p.name, histogram(new), histogram(slope * np.float32(scale)), _ratio(old, new)
            )
            for (_, p), old, new, slope in zip(self._learning, before, weights, slopes, strict=True)
        ]
        now = time.perf_counter()
        self._next_iteration = iteration + self._spacing
        self._next_time = now + (now - began) / SHARE
        return Histograms(iteration, rows)

    def _samples(self, buffer: Array) -> list[Floats]:
        return [self._sample(i, p, buffer) for i, p in self._learning]

    def _sample(self, index: int, parameter: Parameter, buffer: Array) -> Floats:
        values: Any = buffer[parameter.start : parameter.stop]
        if parameter.stop - parameter.start != parameter.blob.count:  # its layout has padding
            values = self._parameters.like(index, buffer).host.reshape(-1)
        step = max(1, len(values) // SAMPLE) | 1  # odd: not always the same place in a block
        return np.array(on_host(values[::step]), np.float32)


def histogram(values: NDArray[Any]) -> Histogram:
    """BINS equal bins between the smallest and the largest finite value."""
    values = values[np.isfinite(values)].astype(np.float64, copy=False)
    if not values.size:
        return Histogram(0.0, 0.0, [0] * BINS)
    low, high = float(values.min()), float(values.max())
    width = (high - low) / BINS
    places = ((values - low) / width).astype(np.int64) if width > 0 else np.zeros(len(values), int)
    counts = np.bincount(np.minimum(places, BINS - 1), minlength=BINS)
    return Histogram(low, high, counts.tolist())


def _ratio(old: Floats, new: Floats) -> float:
    """How large the update is beside the weights, both as L2 norms."""
    size = float(np.linalg.norm(old))
    return float(np.linalg.norm(new - old)) / size if size else 0.0
