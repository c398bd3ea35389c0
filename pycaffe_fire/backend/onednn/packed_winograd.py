"""Winograd's method for weights that rarely change: U is made once and kept.

That takes four times the memory of the weights, and saves most of the work where there are few
tiles, as in a single image.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..cpu.winograd import PRODUCTS, WindowsToU
from ..tensor import NATIVE
from .convolution import Convolution
from .layouts import Argument, Descriptor, OneDNNTensor, Program
from .library import CONVOLUTION_DIRECT, FORWARD_TRAINING, dims
from .winograd import WEIGHT_COST, Operand, Slice, Winograd, read


class Product(NamedTuple):
    """Of one slice."""

    u: Operand  # where kernels write it
    copy: Program  # brings it to the memory that the product reads, if that is another
    multiply: Program


class PackedWinograd(Winograd):
    """U has memory of its own, and only `pack` makes it."""

    packs = True
    weight_cost = dict.fromkeys(WEIGHT_COST, 10)  # to read a number of U

    def __init__(self, direct: Convolution) -> None:
        super().__init__(direct)
        self._products: list[Product] = []

    def _cut(self, together: int) -> None:
        self._outputs = self._group
        self._count = self._largest_chunk(together)
        if self._count < self._rows * together:  # a slice of U stays in a cache meanwhile
            super()._cut(together)

    def pack(self) -> None:
        weights = read(self.w.value)
        for number, part in enumerate(self._slices):
            if number == len(self._products):
                self._products.append(self._new_product())
            product = self._products[number]
            # A kernel that stayed would keep the weights in memory.
            kernel = WindowsToU(**self._window_fields(product.u))
            kernel.w, kernel.u = weights[part.weights], product.u.numbers
            kernel.run()
            product.copy.run()

    def _parts(self) -> Iterator[tuple[Slice, Program]]:
        for part, product in zip(self._slices, self._products, strict=True):
            yield part, product.multiply

    def _new_product(self) -> Product:
        u = Operand(self._frame.library, self._memory, self._inputs, self._outputs)
        multiply = self._product(self._v.whole, u.whole, self._m.whole)
        return Product(u, Program(self.backend), multiply)

    def _memory(self, layout: Descriptor) -> OneDNNTensor:
        made = OneDNNTensor(self.backend, layout.shape)
        made.lay_out(layout)
        made.allocate()
        return made


class GroupedWinograd(PackedWinograd):
    """The products are the groups of a 1x1 convolution, whose kernel wants few rows and has weights
    laid out for it."""

    def _tiles(self, channels: int) -> Operand:
        return Interleaved(self._frame, self._count, self._columns, channels)

    def _new_product(self) -> Product:
        made, u = self._descriptor(), self._u
        strides = (u.steps[0], 1, self._outputs, 1, 1)
        seen = Descriptor.strided(self._frame.library, self._groups_shape, strides)
        layout = Descriptor.chosen(seen.shape, made, "weights", seen)
        packed = self._memory(layout)
        copy, multiply = Program(self.backend), Program(self.backend)
        copy.reorder(u.tensor, packed, seen, layout)
        operands: dict[str | int, Argument] = {
            "src": self._v.whole, "weights": (packed, layout), "dst": self._m.whole,
        }  # fmt: skip
        multiply.add(made, operands)
        return Product(u, copy, multiply)

    @property
    def _groups_shape(self) -> tuple[int, ...]:
        return PRODUCTS, self._outputs, self._inputs, 1, 1

    def _descriptor(self) -> int:
        library = self._frame.library
        weights = Descriptor.any(library, self._groups_shape)
        (_, source), (_, target) = self._v.whole, self._m.whole
        one, zero = dims([1, 1]), dims([0, 0])
        self.backend.use_threads()
        return library.new(
            "convolution_forward_primitive_desc_create", library.engine, FORWARD_TRAINING,
            CONVOLUTION_DIRECT, source.handle, weights.handle, None, target.handle,
            one, zero, zero, zero, None,
        )  # fmt: skip

    @property
    def has_kernel(self) -> bool:
        """Has the library one for such groups?"""
        library = self._frame.library
        made = self._descriptor()
        name = library.implementation(made)
        library.destroy("primitive_desc", made)
        return name.startswith("brgconv_1x1")


class Interleaved(Operand):
    """V or M as an image whose pixels are tiles and whose channels, lying together, are those of
    all products."""

    def __init__(self, frame: Program, rows: int, columns: int, channels: int) -> None:
        everything = PRODUCTS * channels
        self.channels, self.steps = channels, (channels, everything)
        shape = (1, everything, rows, columns)
        strides = (rows * columns * everything, 1, columns * everything, everything)
        layout = Descriptor.strided(frame.library, shape, strides)
        self.tensor = frame.scratch(layout)
        self.tensor.fresh = NATIVE
        self.whole = self.tensor, layout
