"""Inner product for weights that rarely change: they lie in blocks of outputs.

The library has a good kernel for few rows: that of a 1x1 convolution whose pixels are the rows, on
weights in such blocks. They are hundreds of megabytes in some nets, so there is no second copy: the
weights' own memory holds them in that order until anybody reads them (`Tensor.pack`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..plans import WeightedPlan
from ..tensor import NATIVE, Array, Tensor
from .inner_product import InnerProduct
from .layouts import Argument, Descriptor, OneDNNTensor, Program, Seen
from .library import CONVOLUTION_DIRECT, FORWARD_TRAINING, dims


@dataclass(frozen=True)
class OutputBlocks:
    """Blocks of outputs, each as (inputs, block); after them the outputs left over, as rows."""

    outputs: int
    inputs: int
    block: int
    whole: int  # outputs that lie in blocks
    transpose: bool  # are the plain values (inputs, outputs)?

    @property
    def rest(self) -> int:
        return self.outputs - self.whole

    def _blocks(self, storage: Array) -> Iterator[Array]:
        """The memory of each."""
        size = self.block * self.inputs
        for start in range(0, self.whole * self.inputs, size):
            yield storage[start : start + size]

    def pack(self, storage: Array) -> None:
        if self.transpose:
            storage[...] = storage.reshape(self.inputs, -1).T.reshape(-1)  # which is a copy
        for memory in self._blocks(storage):
            memory[...] = memory.reshape(self.block, -1).T.reshape(-1)

    def unpack(self, storage: Array) -> None:
        for memory in self._blocks(storage):
            memory[...] = memory.reshape(-1, self.block).T.reshape(-1)
        if self.transpose:
            storage[...] = storage.reshape(-1, self.inputs).T.reshape(-1)


class PackedInnerProduct(WeightedPlan):
    """`of` a plain product, which runs where several nets or layers compute with the weights."""

    packs = True

    def __init__(self, plain: InnerProduct, form: OutputBlocks, layout: Descriptor) -> None:
        """`layout` is the library's description of the blocks."""
        self._plain, self._form, self._layout = plain, form, layout
        backend, inputs = plain.backend, plain.inputs
        self._blocks = OneDNNTensor(backend, (form.whole, inputs))
        self._rest = OneDNNTensor(backend, (form.rest, inputs))
        self._rest_bias = OneDNNTensor(backend, (1, form.rest))
        self._programs: dict[bool, Program] = {}

    @classmethod
    def of(cls, plain: InnerProduct) -> PackedInnerProduct | None:
        """None where the library has no such kernel, or one for weights in another order."""
        whole, transpose = plain.outputs, plain.transpose
        while whole and (layout := _fast_layout(plain, whole)) is not None:
            (block,) = plain.library.describe(layout.handle)["blocks"]
            if whole % block == 0:
                form = OutputBlocks(plain.outputs, plain.inputs, block, whole, transpose)
                return cls(plain, form, layout)
            whole -= whole % block
        return None

    def pack(self) -> None:
        w, form = self._plain.w.value, self._form
        if w.common:
            return
        w.pack(form)
        assert w.buffer is not None
        middle = form.whole * form.inputs
        self._blocks.bind(w.buffer[:middle])
        self._rest.bind(w.buffer[middle : middle + form.rest * form.inputs])
        self._blocks.fresh = self._rest.fresh = NATIVE
        if self._plain.b is not None:
            self._rest_bias.replace(self._plain.b.value.copied().reshape(-1)[form.whole :])

    def forward(self, activate: bool = True) -> None:
        w = self._plain.w.value
        if w.form != self._form:  # somebody has read the weights
            self.pack()
        if w.form is None:
            self._plain.forward(activate)
            return
        fused = activate and self._plain.relu is not None
        if fused not in self._programs:
            self._programs[fused] = self._program(self._plain.relu if fused else None)
        self._programs[fused].run()

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        self._plain.backward(data, weights, bias)

    def _program(self, relu: float | None) -> Program:
        plain, form = self._plain, self._form
        program = Program(plain.backend)
        x = plain.source_rows(program, plain.x.value)
        if not form.rest:
            self._multiply_blocks(program, x[0], plain.y.value, relu)
            return program
        shapes = ((plain.rows, n) for n in (form.whole, form.rest))
        parts = [program.scratch(plain.backend.plain_layout(shape)) for shape in shapes]
        self._multiply_blocks(program, x[0], parts[0], relu)
        self._multiply_rest(program, x, parts[1], relu)
        y = Descriptor.contiguous(plain.library, (plain.rows, form.outputs))
        for part, start in zip(parts, (0, form.whole), strict=True):
            program.reorder(part, plain.y.value, None, y.part(part.shape, (0, start)))
        return program

    def _multiply_blocks(
        self, program: Program, x: Tensor, y: Tensor, relu: float | None
    ) -> None:  # fmt: skip
        plain, whole = self._plain, self._form.whole
        made = _descriptor(plain, whole, relu, self._layout)
        operands: dict[str | int, Argument] = {
            "src": (x, _pixels(plain, plain.inputs)),
            "weights": (self._blocks, self._layout),
            "dst": (y, _pixels(plain, whole)),
        }
        if plain.b is not None:  # of which it reads the first
            operands["bias"] = plain.b.value, Descriptor.contiguous(plain.library, (whole,))
        program.add(made, operands)

    def _multiply_rest(
        self, program: Program, x: Seen, y: OneDNNTensor, relu: float | None
    ) -> None:
        form, bias = self._form, None
        turned = (form.inputs, form.rest), (1, form.inputs)
        w = Descriptor.strided(program.library, *turned)
        if self._plain.b is not None:
            bias = self._rest_bias, self._rest_bias.layout
        program.product(x, (self._rest, w), (y, y.layout), bias, relu)


def _pixels(plain: InnerProduct, channels: int) -> Descriptor:
    """Rows as the pixels of an image, whose channels lie together."""
    everything = plain.rows * channels
    strides = (everything, 1, everything, channels)
    return Descriptor.strided(plain.library, (1, channels, 1, plain.rows), strides)


def _descriptor(plain: InnerProduct, outputs: int, relu: float | None, weights: Descriptor) -> int:
    library, backend = plain.library, plain.backend
    source = _pixels(plain, plain.inputs)
    target = _pixels(plain, outputs)
    bias = Descriptor.contiguous(library, (outputs,)) if plain.b is not None else None
    one, zero = dims([1, 1]), dims([0, 0])
    with backend.attributes(relu) as attributes:
        backend.use_threads()
        return library.new(
            "convolution_forward_primitive_desc_create", library.engine, FORWARD_TRAINING,
            CONVOLUTION_DIRECT, source.handle, weights.handle, bias.handle if bias else None,
            target.handle, one, zero, zero, zero, attributes,
        )  # fmt: skip


def _fast_layout(plain: InnerProduct, outputs: int) -> Descriptor | None:
    """The order of weights that the kernel wants, if that is one of OutputBlocks."""
    library, shape = plain.library, (outputs, plain.inputs, 1, 1)
    made = _descriptor(plain, outputs, plain.relu, Descriptor.any(library, shape))
    fast = library.implementation(made).startswith("brgconv_1x1")
    handle = library.query_descriptor(made, "weights")
    library.destroy("primitive_desc", made)
    if handle is None:
        return None
    layout, facts = Descriptor(library, shape, handle), library.describe(handle)
    if not fast or facts["block_axes"] != (0,):
        return None
    (block,) = facts["blocks"]
    return layout if facts["strides"][:2] == (plain.inputs * block, block) else None
