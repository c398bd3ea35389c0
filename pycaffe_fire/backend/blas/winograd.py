"""Convolutions by Winograd's method: our transforms around BLAS's matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base import Window
from ..blob import Blob
from ..kernels import winograd as kernels
from ..kernels.tiles import LANES
from ..kernels.winograd import PATCH, PRODUCTS, TILES
from ..tensor import Array
from .convolution import Convolution
from .layouts import images

if TYPE_CHECKING:
    from . import BlasBackend

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


class Winograd(Convolution):
    """A batch goes through in chunks of tile rows: whole images, or equal parts of one."""

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

    def __init__(
        self, backend: BlasBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window,
        groups: int, relu: float | None,
    ) -> None:  # fmt: skip
        super().__init__(backend, x, w, b, y, window, groups, relu)
        self._tile = TILES[w.shape[2]]
        self._rows, self._columns = (-(-n // self._tile) for n in y.shape[2:])
        limit = CHUNK // (PRODUCTS * self._columns * sum(w.shape[:2]))  # rows of tiles
        self._images = limit // self._rows
        self._part = max((n for n in range(1, self._rows + 1)
                          if self._rows % n == 0 and n <= limit), default=1)  # fmt: skip
        weights = np.array(kernels.matrices(w.shape[2])[2], np.float32)
        self._transform = np.kron(weights, weights)  # (PRODUCTS, cells of a window)

    def matrices(self, weights: Array) -> Array:
        """U = G w G^T, (PRODUCTS, inputs, outputs)."""
        outputs, inputs, *size = self.w.shape
        cells = weights.transpose(2, 3, 1, 0).reshape(prod(size), -1)
        return (self._transform @ cells).reshape(PRODUCTS, inputs, outputs)

    def multiply(self, x: Array, w: Array, y: Array, bias: Array, slope: np.float32) -> None:
        image, out = self._blocks(x, self.x), self._blocks(y, self.y)
        for place in self._places(len(image)):
            v, m = self._operands(place[1])
            kernels.spread_patches(image, v.flat, v.steps, place, ALL, self.window.pad)
            np.matmul(v.matrices, w, out=m.matrices)
            kernels.gather_tiles(m.flat, out, m.steps, place, ALL, bias, slope)

    def back(self, dy: Array, w: Any, dx: Array | None, x: Array | None) -> Array | None:
        slopes, pad = self._blocks(dy, self.y), self.window.pad
        outputs, inputs, *size = self.w.shape
        total = np.zeros((PRODUCTS, inputs, outputs), np.float32) if x is not None else None
        overlap = PATCH - self._tile
        width = (self._tile * self._columns + overlap) * inputs
        carried = np.empty((1, overlap, width), np.float32)
        for place in self._places(len(slopes)):
            v, m = self._operands(place[1])
            sums = np.zeros((place[1], outputs), np.float32)  # the bias' gradient, not used
            kernels.spread_tiles(slopes, m.flat, m.steps, place, ALL, sums)
            if x is not None:
                image = self._blocks(x, self.x)
                kernels.spread_patches(image, v.flat, v.steps, place, ALL, pad)
                total += np.matmul(v.matrices.swapaxes(1, 2), m.matrices)
            if dx is not None:
                np.matmul(m.matrices, w.swapaxes(1, 2), out=v.matrices)
                below = self._blocks(dx, self.x)
                kernels.gather_patches(v.flat, below, v.steps, place, ALL, pad, carried, False)
        if total is None:
            return None
        windows = self._transform.T @ total.reshape(PRODUCTS, -1)
        return windows.reshape(*size, inputs, outputs).transpose(3, 2, 0, 1)

    def _operands(self, count: int) -> tuple[Operand, Operand]:
        """V and M of so many rows of tiles, in memory that all plans of a thread share."""
        tiles = count * self._columns
        widths = self.w.shape[1], self.w.shape[0]
        steps = [tiles * n + (SPREAD - tiles * n) % PAGE for n in widths]
        memory = self.backend.scratch(PRODUCTS * sum(steps))
        parts = np.split(memory, [PRODUCTS * steps[0]])
        v, m = (
            Operand(
                part, part.reshape(PRODUCTS, step)[:, : tiles * n].reshape(-1, tiles, n), (step, n)
            )
            for part, step, n in zip(parts, steps, widths, strict=True)
        )
        return v, m

    def _places(self, num: int) -> Iterator[tuple[int, ...]]:
        """Where each chunk of so many images is, as kernels want to know it."""
        step = self._images * self._rows if self._images else self._part
        for first in range(0, num * self._rows, step):
            count = min(step, num * self._rows - first)
            yield first, count, self._rows, self._columns, self._tile

    def _blocks(self, rows: Array, blob: Blob) -> Array:
        """(images, 1, H, W, C)"""
        return images(rows, blob)[:, None]
