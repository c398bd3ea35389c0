"""Convolutions by Winograd's method: our transforms around BLAS's matrix products."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..blob import Blob
from ..cpu.update import add_into
from ..cpu.winograd import (
    LANES,
    PATCH,
    PRODUCTS,
    TILES,
    MToTiles,
    PatchesToV,
    Tiles,
    TilesToM,
    UToWindows,
    VToPatches,
    WindowsToU,
)
from ..plans import Window
from ..tensor import Array
from .convolution import Convolution, Part

CHUNK = 1_500_000  # numbers of V and M that a thread works on at a time
SPREAD, PAGE = 80, 1024  # steps are SPREAD numbers more than pages: neighbours in other cache sets
# What making and reading a number of V or M costs, in multiplications of the direct method; and
# what part of the direct method's work makes it pay.
IMAGE_COST, WORTH = 20, 0.85

T = TypeVar("T", bound=Tiles)


class Place(NamedTuple):
    """Rows of tiles, counted through all images that a thread works on."""

    first: int
    rows: int


class Operand(NamedTuple):
    """PRODUCTS matrices, in flat memory."""

    flat: Array
    matrices: Array

    @classmethod
    def of(cls, memory: Array, step: int, rows: int, columns: int) -> Operand:
        matrices = memory.reshape(PRODUCTS, step)[:, : rows * columns]
        return cls(memory, matrices.reshape(PRODUCTS, rows, columns))


def _step(elements: int) -> int:
    """From one matrix of so many numbers to the next."""
    return elements + (SPREAD - elements) % PAGE


class Winograd(Convolution):
    """A batch goes through in chunks of tile rows. Kernels see all channels as one block."""

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
        self._own = threading.local()
        fields = dict(
            threads=self.backend.threads, outputs=outputs, inputs=inputs, window=size, block=1,
            product_step=self._step,
        )  # fmt: skip
        self._windows_to_u, self._u_to_windows = WindowsToU(**fields), UToWindows(**fields)

    def _kernel(self, kind: type[T], blob: Blob, images: int, place: Place, threads: int) -> T:
        """A kernel of this thread between so many of a blob's images and V or M."""
        kernels = self._own.__dict__
        key = f"{kind.name} {images} {place}"
        kernel: T | None = kernels.get(key)
        if kernel is None:
            _, channels, height, width = blob.shape
            kernel = kernels[key] = kind(
                threads=threads, window=self.w.shape[2], images=images, channel_blocks=1,
                height=height, width=width, block=channels, pad_y=self.window.pad[0],
                pad_x=self.window.pad[1], rows=self._rows, columns=self._columns,
                first_row=place.first, row_count=place.rows, first_block=0, block_count=1,
                product_step=_step(place.rows * self._columns * channels), tile_step=channels,
            )  # fmt: skip
        return kernel

    def _threads(self, units: int) -> int:
        """The number of threads of a kernel, if so many units are shared among threads."""
        return self.backend.threads if len(self.backend.parts(units)) == 1 else 1

    def matrices(self, weights: Array) -> Operand:
        """U, (PRODUCTS, inputs, outputs)."""
        u = self._windows(self.backend.scratch(self.summands, "weights"))
        self._windows_to_u.w, self._windows_to_u.u = weights, u.flat
        self._windows_to_u.run()
        return u

    def _windows(self, memory: Array) -> Operand:
        """As U or its gradient."""
        outputs, inputs = self.w.shape[:2]
        return Operand.of(memory, self._step, inputs, outputs)

    def multiply(
        self, x: Array, w: Any, y: Array, first: int, stop: int, bias: Array, slope: np.float32
    ) -> None:
        images, threads = self.x.shape[0], self._threads(self.units)
        for place in self._places(first, stop, self._chunk):
            v, m = self._operands(place.rows)
            self._read_patches(x, v, images, place, threads)
            np.matmul(v.matrices, w.matrices, out=m.matrices)
            kernel = self._kernel(MToTiles, self.y, images, place, threads)
            kernel.m, kernel.y, kernel.bias, kernel.slope = m.flat, y, bias, float(slope)
            kernel.run()

    def _read_patches(self, x: Array, v: Operand, images: int, place: Place, threads: int) -> None:
        kernel = self._kernel(PatchesToV, self.x, images, place, threads)
        kernel.x, kernel.v = x, v.flat
        kernel.run()

    def back(self, part: Part) -> None:
        images, threads = len(part.dy) // prod(self.y.shape[2:]), self._threads(self.x.shape[0])
        outputs, inputs = self.w.shape[:2]
        width = (self._tile * (self._columns - 1) + PATCH) * inputs
        carried = np.empty((PATCH - self._tile) * width, np.float32)
        part.bias[...] = 0
        for place in self._places(0, images * self._rows, self._images_or_parts):
            v, m = self._operands(place.rows)
            sums = np.zeros((place.rows, outputs), np.float32)
            to_m = self._kernel(TilesToM, self.y, images, place, threads)
            to_m.dy, to_m.m, to_m.sums = part.dy, m.flat, sums
            to_m.run()
            part.bias[...] += sums.sum(axis=0)
            if part.x is not None:
                self._read_patches(part.x, v, images, place, threads)
                self._add_product(v, m, part.weights, place.first > 0)
            if part.dx is not None:
                np.matmul(m.matrices, part.w.matrices.swapaxes(1, 2), out=v.matrices)
                to_dx = self._kernel(VToPatches, self.x, images, place, threads)
                to_dx.v, to_dx.dx, to_dx.carried = v.flat, part.dx, carried
                to_dx.run()

    def _add_product(self, v: Operand, m: Operand, total: Array, add: bool) -> None:
        """total = the gradient of U, or total += it."""
        target = self.backend.scratch(self.summands, "product") if add else total
        np.matmul(v.matrices.swapaxes(1, 2), m.matrices, out=self._windows(target).matrices)
        if add:
            add_into(total, target)

    def add_weights(self, sums: Array) -> None:
        self._u_to_windows.dw = self.w.diff
        for each in sums:
            self._u_to_windows.u = each
            self._u_to_windows.run()

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

    def _places(self, first: int, stop: int, step: int) -> Iterator[Place]:
        """The chunks of these rows of tiles."""
        for start in range(first, stop, step):
            yield Place(start, min(step, stop - start))
