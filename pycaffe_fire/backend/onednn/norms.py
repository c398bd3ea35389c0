"""Norms as kernels know them: the numbers of their channels, in and out of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..kernels.norms import (
    FACTOR,
    KINDS,
    MEAN,
    PRODUCT,
    SCALE,
    SHIFT,
    SUM,
    VARIANCE,
)
from ..kernels.sweeps import WHOLE
from ..plans import Norm, RunningMoments
from ..tensor import Array, Layout, Tensor
from .grids import grid_of

if TYPE_CHECKING:
    from . import OneDNNBackend

NO_RELU = 1.0  # the slope below 0 that changes nothing
IN_CACHE = 2**18  # elements of one tensor that are gone through at a time
OF_ONE_THREAD = 2**19  # elements of a block of channels, at most, that one thread takes
NOTHING = np.empty((0, 0, 0, 0), np.float32)


def has_whole_blocks(layout: Layout) -> bool:
    """Can kernels take it a vector of channels at a time?"""
    return grid_of(layout)[3] % WHOLE == 0


def apart(layout: Layout, threads: int) -> bool:
    """Should threads take blocks of channels each, with all samples?"""
    num, outer, pixels, block = grid_of(layout)
    return num * pixels * block <= OF_ONE_THREAD and outer >= 2 * threads


def blocks_at_a_time(layout: Layout, threads: int) -> int:
    """How many blocks of channels threads take together; 0: see `apart`."""
    num, _, pixels, block = grid_of(layout)
    return 0 if apart(layout, threads) else max(1, IN_CACHE // (num * pixels * block))


class Norms:
    """Of blobs with the channels of one layout; `arrays` are what kernels want of them."""

    def __init__(
        self, backend: OneDNNBackend, layout: Layout, channels: int, norms: Sequence[Norm]
    ) -> None:
        num, outer, _, block = grid_of(layout)
        tables = np.zeros((len(norms), KINDS, outer * block), np.float32)
        rules = np.empty((len(norms), 3), np.float64)
        room = np.empty((3, num * outer * block), np.float32)
        self.arrays: tuple[Array, Array, Array] = (tables, rules, room)
        self._norms = [
            OneNorm(backend, norm, channels, tables[i], rules[i]) for i, norm in enumerate(norms)
        ]

    def __getitem__(self, number: int) -> OneNorm:
        return self._norms[number]

    def take(self) -> None:
        for norm in self._norms:
            norm.take()

    def take_scales(self) -> None:
        """Use the scales as they are now: the caller may have changed them since forward."""
        for norm in self._norms:
            norm.take_scale()

    def give(self, running: Sequence[RunningMoments | None]) -> None:
        for norm, sums in zip(self._norms, running, strict=True):
            norm.give(sums)

    def learn(self, learns: Sequence[Sequence[bool]]) -> None:
        for norm, wanted in zip(self._norms, learns, strict=True):
            norm.learn(*wanted)


class OneNorm:
    """One of them, with its rows of the tables."""

    mean: Tensor
    variance: Tensor

    def __init__(
        self, backend: OneDNNBackend, norm: Norm, channels: int, tables: Array, rules: Array
    ) -> None:
        self.mean, self.variance = backend.tensor((channels,)), backend.tensor((channels,))
        self._norm, self._padded, self._tables = norm, tables, tables[:, :channels]
        self._tables[SCALE] = 1
        slope = NO_RELU if norm.relu is None else norm.relu
        rules[...] = norm.eps, not norm.global_stats, slope

    def take(self) -> None:
        """What forward needs to know."""
        norm, tables = self._norm, self._tables
        self.take_scale()
        if norm.shift is not None:
            tables[SHIFT] = norm.shift.data.reshape(-1)
        if norm.global_stats:
            tables[MEAN], tables[VARIANCE] = self.mean.array, self.variance.array

    def take_scale(self) -> None:
        if self._norm.scale is not None:
            self._tables[SCALE] = self._norm.scale.data.reshape(-1)

    def give(self, running: RunningMoments | None) -> None:
        """What forward has found out."""
        if not self._norm.global_stats:
            self.mean.array[...] = self._tables[MEAN]
            self.variance.array[...] = self._tables[VARIANCE]
        if running is not None:
            running.let_in(self.mean.array, self.variance.array)

    def learn(self, scale: bool, shift: bool) -> None:
        norm, tables = self._norm, self._tables
        if scale and norm.scale is not None:
            products = tables[PRODUCT] / np.sqrt(tables[VARIANCE] + norm.eps)
            norm.scale.diff[...] += products.reshape(norm.scale.shape)
        if shift and norm.shift is not None:
            norm.shift.diff[...] += tables[SUM].reshape(norm.shift.shape)

    def multiply_by_scale(self, gradient: Array) -> None:
        """Turn the gradient of the scaled values into that of the normalized ones."""
        if self._norm.scale is not None:
            gradient *= self._padded[SCALE].reshape(gradient.shape[1], 1, gradient.shape[3])

    def write_normal(self, source: Array, target: Array) -> None:
        """target = (source - mean) * factor + shift, as the last forward pass had it."""
        mean, factor, shift = (
            self._padded[kind].reshape(target.shape[1], 1, target.shape[3])
            for kind in (MEAN, FACTOR, SHIFT)
        )
        np.subtract(source, mean, out=target)
        target *= factor
        target += shift

    def write_result(self, source: Array, target: Array) -> None:
        """The same, with the ReLU."""
        self.write_normal(source, target)
        if self._norm.relu is not None:
            np.multiply(target, np.float32(self._norm.relu), out=target, where=target <= 0)
            target += 0  # never -0, as in kernels
