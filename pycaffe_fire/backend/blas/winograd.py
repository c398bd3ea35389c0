"""Convolutions by Winograd's method: our transforms around BLAS's matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..blob import Blob
from ..cpu.update import add_into
from ..kernels import winograd as kernels
from ..kernels.tiles import LANES
from ..kernels.winograd import NO_IMAGES, PATCH, PRODUCTS, TILES
from ..plans import Window
from ..tensor import Array
from .convolution import Convolution, Part
from .layouts import images

CHUNK = 1_500_000  # numbers of V and M that a thread works on at a time
SPREAD, PAGE = 80, 1024  # steps are SPREAD numbers more than pages: neighbours in other cache sets
# What making and reading a number of V or M costs, in multiplications of the direct method; and
# what part of the direct method's work makes it pay.
IMAGE_COST, WORTH = 20, 0.85
ALL = (0, 1)  # kernels see all channels as one block


class Operand(NamedTuple):
    """PRODUCTS matrices in flat memory, and the strides of matrices and rows."""

    flat: Array
    matrices: Array
    steps: tuple[int, int]

    @classmethod
    def of(cls, memory: Array, step: int, rows: int, columns: int) -> Operand:
        matrices = memory.reshape(PRODUCTS, step)[:, : rows * columns]
        return cls(memory, matrices.reshape(PRODUCTS, rows, columns), (step, columns))


def _step(elements: int) -> int:
    """From one matrix of so many numbers to the next."""
    return elements + (SPREAD - elements) % PAGE


class Winograd(Convolution):
    """A batch goes through in chunks of tile rows."""

    @staticmethod
    def suits(x: Blob, w: Blob, y: Blob, window: Window, groups: int) -> bool:
        """Can it be done, and is it faster?"""
        outputs, inputs, *size = w.shape
        if (
            groups > 1 or size[0] not in TILES or size[0] != size[1]
            or {*window.stride, *window.dilation} != {1} or inputs % LANES or outputs % LANES
        ):  # fmt: skip
            return False
        tiles = prod(-(-n // TILES[size[0]]) for n in y.shape[2:])
        work = PRODUCTS * tiles * (inputs * outputs + IMAGE_COST * (inputs + outputs))
        return work < WORTH * prod(y.shape[2:]) * inputs * outputs * prod(size)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        outputs, inputs, size, _ = self.w.shape
        self._tile = TILES[size]
        self._rows, self._columns = (-(-n // self._tile) for n in self.y.shape[2:])
        self.units = self.x.shape[0] * self._rows
        self._chunk = max(1, CHUNK // (PRODUCTS * self._columns * (inputs + outputs)))
        self._step = _step(inputs * outputs)  # of U
        self.summands = PRODUCTS * self._step
        self.backend.expect(
            [kernels.spread_plain_windows, kernels.spread_patches, kernels.gather_tiles],
            [kernels.spread_tiles, kernels.gather_patches, kernels.gather_plain_windows],
        )

    def matrices(self, weights: Array) -> Operand:
        """U, (PRODUCTS, inputs, outputs)."""
        u = self._windows(self.backend.scratch(self.summands, "weights"))

        def run(first: int, stop: int) -> None:
            kernels.spread_plain_windows(weights, u.flat, self._step, first, stop)

        self.backend.share(self.w.shape[1] // LANES, run)
        return u

    def _windows(self, memory: Array) -> Operand:
        """As U or its gradient."""
        outputs, inputs = self.w.shape[:2]
        return Operand.of(memory, self._step, inputs, outputs)

    def multiply(
        self, x: Array, w: Any, y: Array, first: int, stop: int, bias: Array, slope: np.float32
    ) -> None:
        image, out = self._blocks(x, self.x), self._blocks(y, self.y)
        for place in self._places(first, stop, self._chunk):
            v, m = self._operands(place[1])
            kernels.spread_patches(image, v.flat, v.steps, place, ALL, self.window.pad)
            np.matmul(v.matrices, w.matrices, out=m.matrices)
            kernels.gather_tiles(m.flat, out, m.steps, place, ALL, bias, slope)

    def back(self, part: Part) -> None:
        slopes, pad = self._blocks(part.dy, self.y), self.window.pad
        outputs, inputs = self.w.shape[:2]
        overlap = PATCH - self._tile
        width = (self._tile * self._columns + overlap) * inputs
        carried = np.empty((1, overlap, width), np.float32)
        part.bias[...] = 0
        for place in self._places(0, len(slopes) * self._rows, self._images_or_parts):
            v, m = self._operands(place[1])
            sums = np.zeros((place[1], outputs), np.float32)
            kernels.spread_tiles(slopes, m.flat, m.steps, place, ALL, sums)
            part.bias[...] += sums.sum(axis=0)
            if part.x is not None:
                image = self._blocks(part.x, self.x)
                kernels.spread_patches(image, v.flat, v.steps, place, ALL, pad)
                self._add_product(v, m, part.weights, place[0] > 0)
            if part.dx is not None:
                np.matmul(m.matrices, part.w.matrices.swapaxes(1, 2), out=v.matrices)
                below = self._blocks(part.dx, self.x)
                kernels.gather_patches(
                    v.flat, below, v.steps, place, ALL, pad, carried, False, NO_IMAGES
                )

    def _add_product(self, v: Operand, m: Operand, total: Array, add: bool) -> None:
        """total = the gradient of U, or total += it."""
        target = self.backend.scratch(self.summands, "product") if add else total
        np.matmul(v.matrices.swapaxes(1, 2), m.matrices, out=self._windows(target).matrices)
        if add:
            add_into(total, target)

    def add_weights(self, sums: Array) -> None:
        total = self.w.diff

        def run(first: int, stop: int) -> None:
            for each in sums:
                kernels.gather_plain_windows(each, total, self._step, first, stop)

        self.backend.share(self.w.shape[1] // LANES, run)

    @property
    def _images_or_parts(self) -> int:
        """A chunk of a backward pass: whole images, or equal parts of one."""
        if self._chunk >= self._rows:
            return self._chunk // self._rows * self._rows
        return max(n for n in range(1, self._chunk + 1) if self._rows % n == 0)

    def _operands(self, count: int) -> tuple[Operand, Operand]:
        """V and M of so many rows of tiles, in memory that all plans of a thread share."""
        tiles = count * self._columns
        outputs, inputs = self.w.shape[:2]
        below, above = _step(tiles * inputs), _step(tiles * outputs)
        memory = self.backend.scratch(PRODUCTS * (below + above), "patches")
        v, m = np.split(memory, [PRODUCTS * below])
        return Operand.of(v, below, tiles, inputs), Operand.of(m, above, tiles, outputs)

    def _places(self, first: int, stop: int, step: int) -> Iterator[tuple[int, ...]]:
        """Where each chunk of these rows of tiles is, as kernels want to know it."""
        for start in range(first, stop, step):
            yield start, min(step, stop - start), self._rows, self._columns, self._tile

    def _blocks(self, rows: Array, blob: Blob) -> Array:
        """(images, 1, H, W, C)"""
        return images(rows, blob)[:, None]
