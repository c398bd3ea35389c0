"""Convolutions by Winograd's method: our transforms around oneDNN's matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from ..blob import Blob
from ..cpu.library import available
from ..cpu.winograd import (
    PATCH,
    PRODUCTS,
    TILES,
    MToTiles,
    PatchesToV,
    TilesToM,
    UToWindows,
    VToPatches,
    WindowsToU,
)
from ..plans import Rectified, WeightedPlan
from ..tensor import NATIVE, Array, Tensor
from .convolution import Convolution
from .layouts import Descriptor, OneDNNTensor, Program, Seen
from .library import Library

# What making and reading a number of V or M costs, in multiplications of the direct method
# (measured on GoogLeNet's layers).
IMAGE_COST = 20
# By blocks of channels: 16 are the library's with AVX-512, where products take half the time and
# second-level caches are larger. What a number of U costs, of which 16 fill a line of the cache;
# what part of the direct method's work makes it pay; and numbers of V and M for each thread, of two
# at least, and of U, that are worked on at a time: few enough to stay in a cache.
WEIGHT_COST, WORTH = {8: 50, 16: 25}, {8: 0.85, 16: 0.72}
CHUNK, SLICE = {8: 700_000, 16: 1_500_000}, {8: 2_000_000, 16: 5_000_000}
SPREAD, PAGE = 80, 1024  # steps are SPREAD numbers more than pages: neighbours in other cache sets


class Winograd(WeightedPlan):
    """Takes over from a direct plan whose shapes and layouts suit it.

    Output channels are cut into slices: groups, or parts of them where U is large. Within a slice,
    a batch goes through in chunks of tile rows: whole images, or equal parts of one.
    """

    weight_cost = WEIGHT_COST

    @staticmethod
    def can(direct: Convolution) -> bool:
        """Is it a convolution of this kind, on layouts that our kernels understand?"""
        window = direct.window
        size = window.kernel[0]
        return (
            available() and not direct.transposed and size in TILES
            and window.kernel == (size, size) and {*window.stride, *window.dilation} == {1}
            and _block(direct) > 0
        )  # fmt: skip

    @classmethod
    def suits(cls, direct: Convolution, per_sample: bool = False) -> bool:
        """Can it be done, and is it faster? `per_sample`: for one image, so that the answer does
        not depend on the batch."""
        if not cls.can(direct):
            return False
        window, size = direct.window, direct.window.kernel[0]
        outputs, inputs = direct.w.shape[:2]
        batch, _, *out = direct.y.shape
        images = 1 if per_sample else batch
        tiles = images * prod(-(-n // TILES[size]) for n in out)
        numbers = tiles * (direct.x.shape[1] + outputs)
        block = _block(direct)
        transforms = IMAGE_COST * numbers + cls.weight_cost[block] * inputs * outputs
        taps = prod(map(_taps, direct.x.shape[2:], out, window.pad, window.kernel))
        work = PRODUCTS * (tiles * inputs * outputs + transforms)
        return work < WORTH[block] * images * taps * inputs * outputs

    def __init__(self, direct: Convolution, per_sample: bool = False) -> None:
        """`per_sample`: chunks never hold more than one image, so that all images are treated
        alike, however many there are."""
        self.backend = direct.backend
        self.x, self.w, self.b, self.y = direct.x, direct.w, direct.b, direct.y
        self.relu, self._pad = direct.relu, direct.window.pad
        self._block = _block(direct)
        outputs, self._inputs, size, _ = self.w.shape
        self._group = outputs // direct.groups
        self._tile = TILES[size]
        self._rows, self._columns = (-(-n // self._tile) for n in self.y.shape[2:])
        self._cut(1 if per_sample else self.y.shape[0])
        self._no_bias = np.zeros(outputs, np.float32)
        self._rectified: set[int] = set()

    @property
    def rectified(self) -> Rectified:
        return self._rectified

    def _cut(self, together: int) -> None:
        """Choose slices and chunks; a chunk has at most so many images."""
        slices = [self._block * n for n in _divisors(self._group // self._block)]
        self._outputs = _largest(slices, SLICE[self._block] // (PRODUCTS * self._inputs))
        self._count = self._largest_chunk(together)

    def _largest_chunk(self, together: int) -> int:
        """In rows of tiles."""
        chunks = _divisors(self._rows) + [self._rows * n for n in _divisors(together)]
        each = PRODUCTS * self._columns * (self._inputs + self._outputs)
        return _largest(chunks, CHUNK[self._block] * max(2, self.backend.threads) // each)

    # Scratch memory and products, made when first needed: before a pass writes any, because the
    # the memory that holds them may move when there is one more.

    @cached_property
    def _frame(self) -> Program:
        return Program(self.backend)

    def _scratch(self, rows: int, columns: int) -> Operand:
        return Operand(self._frame.library, self._frame.scratch, rows, columns)

    def _tiles(self, channels: int) -> Operand:
        """V or M."""
        return self._scratch(self._count * self._columns, channels)

    @cached_property
    def _v(self) -> Operand:
        return self._tiles(self._inputs)

    @cached_property
    def _m(self) -> Operand:
        return self._tiles(self._outputs)

    @cached_property
    def _u(self) -> Operand:
        return self._scratch(self._inputs, self._outputs)

    @cached_property
    def _du(self) -> Operand:
        return self._scratch(self._inputs, self._outputs)

    @cached_property
    def _sums(self) -> Array:
        return np.empty((self._count, self._outputs), np.float32)

    @cached_property
    def _carried(self) -> Array:
        overlap = PATCH - self._tile
        width = (self._tile * self._columns + overlap) * self._block
        return np.empty((self._inputs // self._block, overlap, width), np.float32)

    @cached_property
    def _forward_product(self) -> Program:
        return self._product(self._v.whole, self._u.whole, self._m.whole)

    @cached_property
    def _ut(self) -> Operand:
        """U with its matrices transposed, in the same memory."""
        u = self._u.tensor
        return Operand(self._frame.library, lambda _: u, self._outputs, self._inputs)

    @cached_property
    def _data_product(self) -> Program:
        return self._product(self._m.whole, self._ut.whole, self._v.whole)

    @cached_property
    def _weight_products(self) -> tuple[Program, Program]:
        """The one that begins a sum over chunks, and the one that goes on with it."""
        operands = self._v.turned, self._m.whole, self._du.whole
        return self._product(*operands), self._product(*operands, add=True)

    def _product(self, a: Seen, b: Seen, c: Seen, add: bool = False) -> Program:
        program = Program(self.backend)
        program.product(a, b, c, add=add)
        return program

    # Kernels.

    @cached_property
    def _slices(self) -> list[Slice]:
        """The slices, each with its chunks."""
        each, slices = prod(self.w.shape[1:]), []
        for first in range(0, self.y.shape[1], self._outputs):
            stop, (group, within) = first + self._outputs, divmod(first, self._group)
            chunks = [
                Chunk(
                    self._tile_fields(self.x, self._v, row, group * self._inputs),
                    self._tile_fields(self.y, self._m, row, first), within > 0,
                )
                for row in range(0, self.y.shape[0] * self._rows, self._count)
            ]  # fmt: skip
            ends = within + self._outputs == self._group
            slices.append(Slice(slice(first, stop), slice(first * each, stop * each), ends, chunks))
        return slices

    def _tile_fields(
        self, blob: Blob, operand: Operand, first_row: int, first_channel: int
    ) -> dict[str, int]:
        """Return the fields of kernels between a blob's images and V or M."""
        images, channels, height, width = blob.shape
        block, (product_step, tile_step) = self._block, operand.steps
        return dict(
            threads=self.backend.threads, window=self.w.shape[2], images=images,
            channel_blocks=channels // block, height=height, width=width, block=block,
            pad_y=self._pad[0], pad_x=self._pad[1], rows=self._rows, columns=self._columns,
            first_row=first_row, row_count=self._count, first_block=first_channel // block,
            block_count=operand.channels // block, product_step=product_step, tile_step=tile_step,
        )  # fmt: skip

    def _window_fields(self, operand: Operand) -> dict[str, int]:
        """Return the fields of kernels between the weights of a slice and U or its gradient."""
        return dict(
            threads=self.backend.threads, outputs=self._outputs, inputs=self._inputs,
            window=self.w.shape[2], block=self._block, product_step=operand.steps[0],
        )  # fmt: skip

    @cached_property
    def _windows_to_u(self) -> WindowsToU:
        return WindowsToU(**self._window_fields(self._u))

    @cached_property
    def _windows_to_ut(self) -> WindowsToU:
        return WindowsToU(**self._window_fields(self._ut), turned=1)

    @cached_property
    def _u_to_windows(self) -> UToWindows:
        return UToWindows(**self._window_fields(self._du))

    # Running.

    def forward(self, activate: bool = True) -> None:
        slope = self.relu if activate and self.relu is not None else 1.0
        bias = self._no_bias if self.b is None else read(self.b.value)
        x = read(self.x.value)
        y = _written(self.y.value)
        v, m = self._v, self._m
        for part, product in self._parts():
            for chunk in part.chunks:
                chunk.read_patches(x, v.numbers)
                product.run()
                chunk.write_tiles(m.numbers, y, bias[part.outputs], slope)
        self.y.value.fresh = NATIVE

    def _parts(self) -> Iterator[tuple[Slice, Program]]:
        """The slices, each with its product when U is there for it."""
        product, kernel, w = self._forward_product, self._windows_to_u, read(self.w.value)
        for part in self._slices:
            kernel.w, kernel.u = w[part.weights], self._u.numbers
            kernel.run()
            yield part, product

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        x, w = read(self.x.value), read(self.w.value)
        dy = read(self.y.gradient)
        dx = _written(self.x.gradient) if data else None
        dw = read(self.w.gradient) if weights else None
        db = read(self.b.gradient) if bias and self.b is not None else None
        v, m, du, sums = self._v, self._m, self._du, self._sums
        data_product, weight_products = self._data_product, self._weight_products
        to_ut, to_windows = self._windows_to_ut, self._u_to_windows
        for part in self._slices:
            sums[...] = 0
            if data:
                to_ut.w, to_ut.u = w[part.weights], self._ut.numbers
                to_ut.run()
            for number, chunk in enumerate(part.chunks):
                chunk.read_tiles(dy, m.numbers, sums)
                if weights:
                    chunk.read_patches(x, v.numbers)
                    weight_products[number > 0].run()
                if data:
                    data_product.run()
                    values = x if self._rectified and part.ends else None
                    chunk.write_patches(v.numbers, dx, self._carried, values)
            if dw is not None:
                to_windows.u, to_windows.dw = du.numbers, dw[part.weights]
                to_windows.run()
            if db is not None:
                db[part.outputs] += sums.sum(axis=0)
        written = ((self.x, data), (self.w, weights), (self.b, db is not None))
        for blob in (blob for blob, wanted in written if blob is not None and wanted):
            blob.gradient.fresh = NATIVE


class Chunk:
    """The kernels on some rows of tiles, with the channels of one slice."""

    def __init__(self, of_x: dict[str, int], of_y: dict[str, int], add: bool) -> None:
        """Take the fields of kernels on x and y; `add` the gradients of x to what is there."""
        self._of_x, self._of_y, self._add = of_x, of_y, int(add)

    @cached_property
    def _patches_to_v(self) -> PatchesToV:
        return PatchesToV(**self._of_x)

    @cached_property
    def _v_to_patches(self) -> VToPatches:
        return VToPatches(**self._of_x, add=self._add)

    @cached_property
    def _m_to_tiles(self) -> MToTiles:
        return MToTiles(**self._of_y)

    @cached_property
    def _tiles_to_m(self) -> TilesToM:
        return TilesToM(**self._of_y)

    def read_patches(self, x: Array, v: Array) -> None:
        """V from x."""
        kernel = self._patches_to_v
        kernel.x, kernel.v = x, v
        kernel.run()

    def write_tiles(self, m: Array, y: Array, bias: Array, slope: float) -> None:
        """Y from M, with bias and ReLU."""
        kernel = self._m_to_tiles
        kernel.m, kernel.y, kernel.bias, kernel.slope = m, y, bias, slope
        kernel.run()

    def read_tiles(self, dy: Array, m: Array, sums: Array) -> None:
        """The gradient of M from that of y; add that of the bias to the sums."""
        kernel = self._tiles_to_m
        kernel.dy, kernel.m, kernel.sums = dy, m, sums
        kernel.run()

    def write_patches(self, v: Array, dx: Array, carried: Array, x: Array | None) -> None:
        """The gradient of x from that of V; if x is given, also the one of a ReLU before."""
        kernel = self._v_to_patches
        kernel.v, kernel.dx, kernel.carried = v, dx, carried
        if kernel.x is not x:
            kernel.x = x
        kernel.run()


class Slice(NamedTuple):
    """Some output channels of one group."""

    outputs: slice
    weights: slice
    ends: bool  # no others of its group follow
    chunks: list[Chunk]


Allocate = Callable[[Descriptor], OneDNNTensor]


class Operand:
    """V, U or M: a matrix for each product, in memory that `allocate` gives."""

    def __init__(self, library: Library, allocate: Allocate, rows: int, columns: int) -> None:
        step = rows * columns + (SPREAD - rows * columns) % PAGE
        self.channels, self.steps = columns, (step, columns)
        whole = Descriptor.strided(library, (PRODUCTS, rows, columns), (step, columns, 1))
        turned = Descriptor.strided(library, (PRODUCTS, columns, rows), (step, 1, columns))
        self.tensor = allocate(whole)
        self.tensor.fresh = NATIVE  # kernels fill it before anybody reads it
        self.whole, self.turned = (self.tensor, whole), (self.tensor, turned)

    @property
    def numbers(self) -> Array:
        return self.tensor.buffer


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def _largest(numbers: list[int], limit: int) -> int:
    return max((n for n in numbers if n <= limit), default=numbers[0])


def _taps(size: int, out: int, pad: int, window: int) -> int:
    """How many pairs of a pixel and an output there are along one axis: a direct method leaves out
    those beyond the border."""
    starts = range(-pad, out - pad)
    return sum(max(0, min(size, start + window) - max(0, start)) for start in starts)


def _block(direct: Convolution) -> int:
    """b if images lie as (N, C/b, H, W, b) and weights as (O/b, I/b, k, k, b, b), else 0; with
    groups, a block of outputs belongs to one of them."""
    layout = direct.w.value.layout
    assert isinstance(layout, Descriptor)
    if layout.is_plain:
        return 0
    outputs, inputs, *size = layout.shape
    shape = (outputs // direct.groups, inputs, *size)
    if direct.groups > 1:
        shape = (direct.groups, *shape)
    facts = layout.library.describe(layout.handle)
    block, *others = {*facts["blocks"]} or {1}
    outer = (*shape[:-4], *(n // block for n in shape[-4:-2]), *size)
    strides = tuple(prod(outer[i + 1 :]) * block * block for i in range(len(outer)))
    dense = facts["block_axes"] == (len(shape) - 3, len(shape) - 4) and not others
    dense &= facts["padded"] == shape and facts["strides"] == strides
    for blob in (direct.x, direct.y):
        grid = blob.value.layout.grid
        dense &= grid is not None and grid[3] == block and blob.shape[1] % block == 0
    return block if dense and block in CHUNK else 0


def read(tensor: Tensor) -> Array:
    """The numbers of a tensor as they lie, zeros if it was cleared."""
    tensor.sync()
    return _written(tensor)


def _written(tensor: Tensor) -> Array:
    """The same, whatever they are: they are about to be written."""
    tensor.allocate()
    assert tensor.buffer is not None
    return tensor.buffer[: tensor.layout.elements]
