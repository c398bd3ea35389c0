"""3x3 convolutions by Winograd's method: transforms of our own around oneDNN's matrix products."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from math import prod

import numpy as np

from ..base import WeightedPlan
from ..compiled import numba, use_threads
from ..kernels import winograd as kernels
from ..kernels.tiles import LANES
from ..kernels.winograd import PRODUCTS, TILE, WINDOW
from ..tensor import NATIVE, Array, Layout, Tensor
from .convolution import Convolution
from .memory import Descriptor, Program

# What making and reading a number of V or M costs, or of U, in multiplications of the direct method
# (measured on GoogLeNet's layers); and what part of the direct method's work makes it pay.
IMAGE_COST, WEIGHT_COST, WORTH = 20, 50, 0.85
CHUNK = 1_000_000  # numbers of V and M at a time, so that they stay in a cache
SPREAD, PAGE = 80, 1024  # steps are SPREAD numbers more than pages: neighbours in other cache sets


class Winograd(WeightedPlan):
    """Takes over from a direct plan whose shapes and layouts suit it.

    A batch goes through in chunks of tile rows: whole images, or equal parts of one.
    """

    @staticmethod
    def suits(direct: Convolution) -> bool:
        """Can it be done, and is it faster?"""
        window = direct.window
        if (
            numba is None or direct.transposed or direct.groups > 1
            or window.kernel != (WINDOW, WINDOW) or {*window.stride, *window.dilation} != {1}
        ):  # fmt: skip
            return False
        layouts = [blob.value.layout for blob in (direct.x, direct.y)]
        if not all(map(_has_vectors, layouts)) or not _weight_block(direct.w.value.layout):
            return False
        outputs, inputs = direct.w.shape[:2]
        images, _, height, width = direct.y.shape
        tiles = images * -(-height // TILE) * -(-width // TILE)
        products = tiles * inputs * outputs
        work = products + IMAGE_COST * tiles * (inputs + outputs) + WEIGHT_COST * inputs * outputs
        pixels = images * height * width
        return PRODUCTS * work < WORTH * WINDOW**2 * pixels * inputs * outputs

    def __init__(self, direct: Convolution) -> None:
        self.backend = direct.backend
        self.x, self.w, self.b, self.y = direct.x, direct.w, direct.b, direct.y
        self.relu, self._pad = direct.relu, direct.window.pad
        self._outputs, self._inputs = self.w.shape[:2]
        self._rows, self._columns = (-(-size // TILE) for size in self.y.shape[2:])
        each = PRODUCTS * self._columns * (self._inputs + self._outputs)
        self._count = _largest(_chunks(self.y.shape[0], self._rows), CHUNK // each)
        block = _weight_block(self.w.value.layout)
        self._windows = (
            self._outputs // block,
            self._inputs // block,
            WINDOW,
            WINDOW,
            block,
            block,
        )
        self._no_bias = np.zeros(self._outputs, np.float32)

    # Scratch memory and products, made when first needed: before a pass writes any, because the
    # memory behind all of them may move when there is one more.

    @cached_property
    def _frame(self) -> Program:
        return Program(self.backend)

    @cached_property
    def _v(self) -> Operand:
        return Operand(self._frame, self._count * self._columns, self._inputs)

    @cached_property
    def _m(self) -> Operand:
        return Operand(self._frame, self._count * self._columns, self._outputs)

    @cached_property
    def _u(self) -> Operand:
        return Operand(self._frame, self._inputs, self._outputs)

    @cached_property
    def _du(self) -> Operand:
        return Operand(self._frame, self._inputs, self._outputs)

    @cached_property
    def _sums(self) -> Array:
        return np.empty((self._count, self._outputs), np.float32)

    @cached_property
    def _carried(self) -> Array:
        _, blocks, _, _, block = _image_shape(self.x.value)
        return np.empty((blocks, 2, (TILE * self._columns + 2) * block), np.float32)

    @cached_property
    def _forward_product(self) -> Program:
        return _product(self._v.whole, self._u.whole, self._m.whole)

    @cached_property
    def _data_product(self) -> Program:
        return _product(self._m.whole, self._u.turned, self._v.whole)

    @cached_property
    def _weight_products(self) -> tuple[Program, Program]:
        """The one that begins a sum over chunks, and the one that goes on with it."""
        operands = self._v.turned, self._m.whole, self._du.whole
        return _product(*operands), _product(*operands, add=True)

    # Running.

    def forward(self, activate: bool = True) -> None:
        slope = np.float32(self.relu if activate and self.relu is not None else 1)
        bias = self._no_bias if self.b is None else _read(self.b.value)
        x, y, v, m = _read_image(self.x.value), _image(self.y.value), self._v, self._m
        product = self._forward_product
        use_threads(self.backend.threads)
        self._transform_weights()
        for place in self._places():
            kernels.spread_patches(x, v.numbers, v.step, place, self._pad)
            product.run()
            kernels.gather_tiles(m.numbers, y, m.step, place, bias, slope)
        self.y.value.fresh = NATIVE

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        x, dy, v, m = _read_image(self.x.value), _read_image(self.y.gradient), self._v, self._m
        data_product, weight_products = self._data_product, self._weight_products
        use_threads(self.backend.threads)
        if data:
            dx = _image(self.x.gradient)
            self._transform_weights()
        self._sums[...] = 0
        for number, place in enumerate(self._places()):
            kernels.spread_tiles(dy, m.numbers, m.step, place, self._sums)
            if weights:
                kernels.spread_patches(x, v.numbers, v.step, place, self._pad)
                weight_products[number > 0].run()
            if data:
                data_product.run()
                kernels.gather_patches(v.numbers, dx, v.step, place, self._pad, self._carried)
        if data:
            self.x.gradient.fresh = NATIVE
        if weights:
            dw = _read(self.w.gradient).reshape(self._windows)
            kernels.gather_windows(self._du.numbers, dw, self._du.step)
            self.w.gradient.fresh = NATIVE
        if bias and self.b is not None:
            db = _read(self.b.gradient)
            db += self._sums.sum(axis=0)
            self.b.gradient.fresh = NATIVE

    def _transform_weights(self) -> None:
        w = _read(self.w.value).reshape(self._windows)
        kernels.spread_windows(w, self._u.numbers, self._u.step)

    def _places(self) -> Iterable[tuple[int, ...]]:
        """Where each chunk is, as kernels want to know it."""
        for first in range(0, self.y.shape[0] * self._rows, self._count):
            yield first, self._count, self._rows, self._columns


class Operand:
    """V, U or M: a matrix for each product, in scratch memory."""

    def __init__(self, frame: Program, rows: int, columns: int) -> None:
        library = frame.library
        self.step = rows * columns + (SPREAD - rows * columns) % PAGE
        whole = Descriptor.strided(library, (PRODUCTS, rows, columns), (self.step, columns, 1))
        turned = Descriptor.strided(library, (PRODUCTS, columns, rows), (self.step, 1, columns))
        self._tensor = frame.scratch(whole)
        self._tensor.fresh = NATIVE  # kernels fill it before anybody reads it
        self.whole, self.turned = (self._tensor, whole), (self._tensor, turned)

    @property
    def numbers(self) -> Array:
        return self._tensor.buffer


Seen = tuple[Tensor, Descriptor]


def _product(a: Seen, b: Seen, c: Seen, add: bool = False) -> Program:
    """c = a b, or c += a b, for all of their matrices."""
    backend = c[0].backend
    program = Program(backend)  # type: ignore[arg-type]
    library = program.library
    with program.backend.attributes(add=add) as attributes:
        program.backend.use_threads()
        operands = (a[1].handle, b[1].handle, None, c[1].handle)
        made = library.new("matmul_primitive_desc_create", library.engine, *operands, attributes)
    program.add(made, {"src": a, "weights": b, "dst": c})
    return program


def _chunks(images: int, rows: int) -> list[int]:
    """Numbers of tile rows that divide an image, or are images that divide the batch."""
    parts = [part for part in range(1, rows) if rows % part == 0]
    return parts + [rows * n for n in range(1, images + 1) if images % n == 0]


def _largest(numbers: list[int], limit: int) -> int:
    return max((n for n in numbers if n <= limit), default=numbers[0])


def _has_vectors(layout: Layout) -> bool:
    """Is it one of (N, C/b, H, W, b), with whole vectors of channels?"""
    grid = layout.grid
    return grid is not None and grid[3] % LANES == 0 and grid[1] * grid[3] == layout.shape[1]


def _weight_block(layout: Layout) -> int:
    """b of weights that lie as (O/b, I/b, 3, 3, b, b), else 0."""
    assert isinstance(layout, Descriptor)
    _, inputs, height, width = layout.shape
    facts = layout.library.describe(layout.handle, 4)
    if facts["block_axes"] != (1, 0) or facts["padded"] != layout.shape:
        return 0
    block = facts["blocks"][0]
    area = block * block
    dense = (inputs // block * height * width * area, height * width * area, width * area, area)
    fits = facts["blocks"] == (block, block) and facts["strides"] == dense
    return block if fits and block % LANES == 0 else 0


def _read(tensor: Tensor) -> Array:
    """The numbers of a tensor as they lie, zeros if it was cleared."""
    tensor.sync()
    assert tensor.buffer is not None
    return tensor.buffer[: tensor.layout.elements]


def _image_shape(tensor: Tensor) -> tuple[int, ...]:
    grid = tensor.layout.grid
    assert grid is not None
    return (*grid[:2], *tensor.shape[2:], grid[3])


def _image(tensor: Tensor) -> Array:
    """The memory of images (N, C/b, H, W, b), to be written."""
    tensor.allocate()
    assert tensor.buffer is not None
    shape = _image_shape(tensor)
    return tensor.buffer[: prod(shape)].reshape(shape)


def _read_image(tensor: Tensor) -> Array:
    tensor.sync()
    return _image(tensor)
