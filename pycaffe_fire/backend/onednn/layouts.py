"""Layouts, tensors and programs over oneDNN memory.

A tensor owns one oneDNN memory object per layout it is seen in; the objects stay, and only the
address they hold moves when storage is assigned. So plans can be built before memory is.
"""

from __future__ import annotations

import ctypes as C
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BackendError
from ..compiled import use_threads
from ..tensor import NATIVE, Array, Layout, Tensor
from .library import (
    ANY_LAYOUT,
    ARGUMENT,
    BF16,
    BINARY_ADD,
    F32,
    FORWARD_TRAINING,
    MULTIPLE_SOURCE,
    PLAIN_TAGS,
    RELU,
    ExecArgument,
    Library,
    addend,
    axis_numbers,
    dims,
    floats,
    handles,
)

if TYPE_CHECKING:
    from . import OneDNNBackend

ALIGNMENT = 16  # elements: one cache line


class Descriptor(Layout):
    """A layout described by a oneDNN memory descriptor, which it owns.

    `plain` describes the C-contiguous array of the same values in the same logical order; weights
    need it spelled out, because oneDNN counts their axes differently from Caffe (groups).
    """

    def __init__(
        self, library: Library, shape: Sequence[int], handle: int, plain: Descriptor | None = None
    ) -> None:
        super().__init__(shape)
        self.library = library
        self.handle = handle
        self.elements = max(-(-library.size(handle) // 4), 1)
        self.plain = plain or self
        self.is_plain = plain is None

    @classmethod
    def contiguous(cls, library: Library, shape: Sequence[int]) -> Descriptor:
        """The plain layout; what oneDNN cannot name (no axes, too many, none left) is flat."""
        logical = tuple(shape)
        known: Descriptor | None = library.plain.get(logical)
        if known is not None:
            return known
        if not 1 <= len(logical) <= len(PLAIN_TAGS) or 0 in logical:
            logical = (max(prod(logical), 1),)
        arguments = (len(logical), dims(logical), F32, PLAIN_TAGS[len(logical)])
        made = cls(library, shape, library.new("memory_desc_create_with_tag", *arguments))
        library.plain[tuple(shape)] = made
        return made

    @classmethod
    def strided(cls, library: Library, shape: Sequence[int], strides: Sequence[int]) -> Descriptor:
        arguments = (len(shape), dims(shape), F32, dims(strides))
        return cls(library, shape, library.new("memory_desc_create_with_strides", *arguments))

    @classmethod
    def any(cls, library: Library, shape: Sequence[int], kind: int = F32) -> Descriptor:
        """Leaves the choice to the primitive it is used to create."""
        arguments = (len(shape), dims(shape), kind, ANY_LAYOUT)
        return cls(library, shape, library.new("memory_desc_create_with_tag", *arguments))

    @classmethod
    def chosen(
        cls, shape: Sequence[int], primitive_descriptor: int, what: str, plain: Descriptor
    ) -> Descriptor:
        """What a primitive wants for one argument of Caffe shape `shape`."""
        library = plain.library
        handle = library.query_descriptor(primitive_descriptor, what)
        if handle is None:
            raise BackendError(f"oneDNN primitive has no {what}")
        if library.equal(handle, plain.handle):
            library.destroy("memory_desc", handle)
            return plain
        return cls(library, shape, handle, plain)

    def part(self, shape: Sequence[int], offset: Sequence[int]) -> Descriptor:
        """A window into this layout; raises BackendError where blocks would be cut."""
        arguments = (self.handle, dims(shape), dims(offset))
        made = self.library.new("memory_desc_create_submemory", *arguments)
        return Descriptor(self.library, shape, made, Descriptor.contiguous(self.library, shape))

    def turned(self) -> Descriptor:
        """This layout with its first two axes counted the other way round."""
        first, second, *others = self.shape
        axes = axis_numbers([1, 0, *range(2, len(self.shape))])
        made = self.library.new("memory_desc_permute_axes", self.handle, axes)
        return Descriptor(self.library, (second, first, *others), made)

    def in_bf16(self) -> Descriptor:
        """This layout in 16 bits: with the same strides, or plain where it is blocked."""
        library, shape = self.library, self.shape
        facts = library.describe(self.handle)
        if facts["blocks"]:
            arguments = (len(shape), dims(shape), BF16, PLAIN_TAGS[len(shape)])
            made = library.new("memory_desc_create_with_tag", *arguments)
        else:
            arguments = (len(shape), dims(shape), BF16, dims(facts["strides"]))
            made = library.new("memory_desc_create_with_strides", *arguments)
        return Descriptor(library, shape, made, self.plain)

    @property
    def is_dense(self) -> bool:
        """Is every element of its memory its own, nothing left out between them?"""
        library = self.library
        return library.size(self.handle) == 4 * prod(library.describe(self.handle)["padded"])

    @cached_property
    def grid(self) -> tuple[int, int, int, int] | None:
        if self.is_plain:
            return super().grid
        facts = self.library.describe(self.handle)
        if len(self.shape) < 3 or len(facts["strides"]) != len(self.shape):
            return None  # weights in groups have an axis more than their blob
        pixels = prod(self.shape[2:])
        channels = facts["padded"][1]
        spatial = tuple(prod(self.shape[i + 1 :]) for i in range(2, len(self.shape)))
        if facts["block_axes"] == (1,):
            block = facts["blocks"][0]
            want = (channels * pixels, pixels * block, *(s * block for s in spatial))
            grid, counted = (self.shape[0], channels // block, pixels, block), channels // block
        elif facts["block_axes"] == ():
            want = (channels * pixels, 1, *(s * channels for s in spatial))
            grid, counted = (self.shape[0], 1, pixels, channels), channels
        else:
            return None
        # Where there is only one, nothing follows from how far away the next would be.
        counts = (self.shape[0], counted, *self.shape[2:])
        steps = zip(counts, facts["strides"], want, strict=True)
        return grid if all(n == 1 or step == right for n, step, right in steps) else None

    @cached_property
    def has_plain_order(self) -> bool:
        """Do elements lie as in a plain array, blocked as they are? One pixel's channels do."""
        grid = self.grid
        return grid is not None and grid[2] == 1 and grid[1] * grid[3] == self.shape[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descriptor) and self.library.equal(self.handle, other.handle)

    def __hash__(self) -> int:
        return self.elements

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.destroy("memory_desc", self.handle)


class OneDNNTensor(Tensor):
    """A tensor with oneDNN memory objects that follow its storage."""

    backend: OneDNNBackend
    layout: Descriptor
    lent = False  # a data layer gives it new buffers of its own

    def __init__(self, backend: OneDNNBackend, shape: Sequence[int]) -> None:
        self._memories: list[tuple[Descriptor, int]] = []
        self._tables: list[tuple[weakref.ref[Array], int]] = []
        super().__init__(backend, shape)

    def memory(self, layout: Descriptor | None = None) -> int:
        """The memory object that shows this tensor's storage as `layout` (its own if None)."""
        layout = layout or self.layout
        for known, handle in self._memories:
            if known == layout:
                return handle
        library = self.backend.library
        address = self.buffer.ctypes.data if self.buffer is not None else None
        handle = library.new("memory_create", layout.handle, library.engine, address)
        self._memories.append((layout, handle))
        return handle

    def write_address(self, table: Array, place: int) -> None:
        """Into a table, now and whenever storage is assigned."""
        self._tables = [known for known in self._tables if known[0]() is not None]
        self._tables.append((weakref.ref(table), place))
        if self.buffer is not None:
            table[place] = self.buffer.ctypes.data

    def bind(self, buffer: Array | None) -> None:
        super().bind(buffer)
        if buffer is None:
            return
        address = buffer.ctypes.data
        for _, handle in self._memories:
            self.backend.library.call("memory_set_data_handle", handle, address)
        for ref, place in self._tables:
            table = ref()
            if table is not None:
                table[place] = address

    def _replace_layout(self, layout: Layout) -> None:
        self._release()
        super()._replace_layout(layout)

    def _release(self) -> None:
        for _, handle in self._memories:
            self.backend.library.destroy("memory", handle)
        self._memories = []

    def __del__(self) -> None:
        self._release()


class Workspace:
    """One growing buffer that holds all scratch tensors of a backend: they live for one op only."""

    def __init__(self, backend: OneDNNBackend) -> None:
        self.backend = backend
        self.buffer = backend.empty(0)
        self._tensors: list[tuple[weakref.ref[OneDNNTensor], int]] = []

    def attach(self, tensor: OneDNNTensor, start: int) -> int:
        """Place a scratch tensor at an offset; returns the offset after it."""
        stop = start + -(-tensor.layout.elements // ALIGNMENT) * ALIGNMENT
        self._tensors.append((weakref.ref(tensor), start))
        if stop > self.buffer.size:
            self.buffer = self.backend.empty(stop)
            self._tensors = [(ref, at) for ref, at in self._tensors if ref() is not None]
            for ref, at in self._tensors:
                placed = ref()
                if placed is not None:
                    placed.bind(self.buffer[at:])
        else:
            tensor.bind(self.buffer[start:])
        return stop


Seen = tuple[Tensor, Descriptor]  # in a layout of its memory that may not be its own
Argument = Tensor | Seen | None
_OUTPUTS = ("dst", "diff_src", "diff_weights", "diff_bias", "diff_scale", "diff_shift")


class Program:
    """Primitives and kernels with frozen arguments, run in turn: one ctypes call each."""

    def __init__(self, backend: OneDNNBackend) -> None:
        self.backend = backend
        self.library = backend.library
        self._calls: list[tuple[Callable[..., int | None], tuple[int, ...]]] = []
        self._has_kernels = False
        self._keep: list[Any] = []
        self._reads: list[OneDNNTensor] = []
        self._writes: list[OneDNNTensor] = []
        self._scratch: list[OneDNNTensor] = []
        self._frame = 0

    @classmethod
    def joined(cls, programs: Sequence[Program]) -> Program:
        """One that does what they do, in this order."""
        whole = cls(programs[0].backend)
        for program in programs:
            whole._keep.append(program)
            whole._calls += program._calls
            whole._has_kernels |= program._has_kernels
            for tensor in program._reads:
                whole._note(tensor, written=False)
            for tensor in program._writes:
                whole._note(tensor, written=True)
        return whole

    def scratch(self, layout: Descriptor) -> OneDNNTensor:
        """A tensor that holds nothing between two runs."""
        tensor = OneDNNTensor(self.backend, layout.shape)
        tensor.lay_out(layout)
        self._frame = self.backend.workspace.attach(tensor, self._frame)
        self._scratch.append(tensor)
        return tensor

    def add(
        self,
        primitive_descriptor: int,
        arguments: Mapping[str | int, Argument],
        also_writes: Sequence[str] = (),
    ) -> None:
        """Append a primitive; names tell which arguments it writes, besides `also_writes`."""
        library = self.library
        if library.is_reference(primitive_descriptor):
            shapes = [list(b[1].shape if isinstance(b, tuple) else b.shape)
                      for b in arguments.values() if b is not None]  # fmt: skip
            library.report_reference(primitive_descriptor, shapes)
        self.backend.use_threads()
        primitive = library.new("primitive_create", primitive_descriptor)
        forward = "dst" in arguments
        table = []
        for which, bound in arguments.items():
            if bound is None:
                continue
            tensor, layout = bound if isinstance(bound, tuple) else (bound, None)
            assert isinstance(tensor, OneDNNTensor)
            number = ARGUMENT[which] if isinstance(which, str) else which
            table.append(ExecArgument(number, tensor.memory(layout)))
            written = which in _OUTPUTS or (which == "workspace" and forward)
            self._note(tensor, written or which in also_writes)
        frozen = (ExecArgument * len(table))(*table)
        self._keep += [frozen, arguments, _Owned(library, primitive, primitive_descriptor)]
        given = (primitive, library.stream, len(table), C.addressof(frozen))
        self._calls.append((library.execute, given))

    def add_kernel(
        self, kernel: Any, sources: Sequence[Tensor], target: Tensor, numbers: Sequence[int]
    ) -> None:
        """Append a `table_kernel`; its table holds where the tensors are, then the numbers."""
        table = np.array([0] * (len(sources) + 1) + [*numbers], np.int64)
        for place, tensor in enumerate((*sources, target)):
            assert isinstance(tensor, OneDNNTensor)
            tensor.write_address(table, place)
            self._note(tensor, written=tensor is target)
        self._keep.append(table)
        self._calls.append((kernel.native, (table.ctypes.data,)))
        self._has_kernels = True

    def _note(self, tensor: OneDNNTensor, written: bool) -> None:
        """Sources come first in an argument table, so an in-place argument counts as read."""

        def listed(tensors: list[OneDNNTensor]) -> bool:
            return any(tensor is t for t in tensors)

        if listed(self._scratch):
            return
        if written and not listed(self._writes):
            self._writes.append(tensor)
        elif not written and not listed(self._reads) and not listed(self._writes):
            self._reads.append(tensor)

    def reorder(
        self, source: Tensor, target: Tensor,
        source_layout: Descriptor | None = None, target_layout: Descriptor | None = None,
    ) -> None:  # fmt: skip
        """Append a conversion from one layout to another."""
        library = self.library
        assert isinstance(source, OneDNNTensor) and isinstance(target, OneDNNTensor)
        a, b = source_layout or source.layout, target_layout or target.layout
        engine = library.engine
        arguments = (a.handle, engine, b.handle, engine, None)
        made = library.new("reorder_primitive_desc_create", *arguments)
        self.add(made, {"src": (source, a), "dst": (target, b)})

    def source(self, tensor: Tensor, layout: Descriptor, seen_as: Descriptor | None = None) -> Seen:
        """`tensor` for reading in `layout`: itself, or a copy that the program makes first.

        `seen_as` is another description of the tensor's own storage (say, with groups).
        """
        own = seen_as or tensor.layout
        if own == layout:
            return tensor, layout
        copy = self.scratch(layout)
        self.reorder(tensor, copy, source_layout=seen_as)
        return copy, layout

    def target(
        self, tensor: Tensor, layout: Descriptor, seen_as: Descriptor | None = None,
        accumulate: bool = False, wanted: bool = True,
    ) -> tuple[Seen, Staged | None]:  # fmt: skip
        """`tensor` for writing in `layout`, and what `finish` must do afterwards if anything.

        A scratch tensor stands in where the layouts differ, where the result is to be added to
        what is there, or where it is not wanted.
        """
        own = seen_as or tensor.layout
        assert isinstance(own, Descriptor)
        if wanted and not accumulate and own == layout:
            return (tensor, layout), None
        stand_in = self.scratch(layout)
        staged = Staged(stand_in, tensor, own, accumulate) if wanted else None
        return (stand_in, layout), staged

    def finish(self, staged: Staged | None) -> None:
        """Bring a staged result to the tensor it is meant for."""
        if staged is None:
            return
        if staged.accumulate:
            target = (staged.tensor, staged.layout)
            self.sum([target, (staged.stand_in, staged.stand_in.layout)], target)
        else:
            self.reorder(staged.stand_in, staged.tensor, target_layout=staged.layout)

    def sum(
        self, parts: Sequence[Seen], total: Seen, coefficients: Sequence[float] | None = None,
        relu: float | None = None,
    ) -> None:  # fmt: skip
        """Append total = ReLU of the sum of coefficient * part; total may be the first part."""
        alike = len(parts) > 1 and all(layout == total[1] for _, layout in parts)
        if alike and set(coefficients or [1.0]) == {1.0} and self._additions(parts, total, relu):
            return
        made = self._sum_descriptor(parts, total, coefficients)
        if self.library.is_reference(made) and total[1].is_dense:
            # Equal layouts may be summed as they lie in memory, padding and all.
            self.library.destroy("primitive_desc", made)
            flat = Descriptor.contiguous(self.library, (total[1].elements,))
            parts = [self.copied(part, total[1]) for part in parts]
            parts, total = [(tensor, flat) for tensor, _ in parts], (total[0], flat)
            made = self._sum_descriptor(parts, total, coefficients)
        arguments: dict[str | int, Argument] = {
            MULTIPLE_SOURCE + i: part for i, part in enumerate(parts)
        }
        self.add(made, {**arguments, "dst": total})
        if relu is not None:
            self.relu(total, relu)

    def _additions(self, parts: Sequence[Seen], total: Seen, relu: float | None) -> bool:
        """The same, for parts that lie alike, by additions, which take a fifth to a half of the
        time; says whether there is a kernel for that."""
        first, second, *others = parts
        layout = total[1].handle
        with self.backend.attributes(relu, addends=[part[1] for part in others]) as attributes:
            self.backend.use_threads()
            made = self.library.new(
                "binary_primitive_desc_create", self.library.engine, BINARY_ADD, layout, layout,
                layout, attributes,
            )  # fmt: skip
        if self.library.is_reference(made):
            self.library.destroy("primitive_desc", made)
            return False
        added: dict[str | int, Argument] = {addend(i): part for i, part in enumerate(others)}
        self.add(made, {"src": first, "src1": second, **added, "dst": total})
        return True

    def _sum_descriptor(
        self, parts: Sequence[Seen], total: Seen, coefficients: Sequence[float] | None
    ) -> int:
        library, n = self.library, len(parts)
        sources = handles([layout.handle for _, layout in parts])
        self.backend.use_threads()
        return library.new(
            "sum_primitive_desc_create", library.engine, total[1].handle, n,
            floats(coefficients or [1.0] * n), sources, None,
        )  # fmt: skip

    def copied(self, seen: Seen, layout: Descriptor) -> Seen:
        """What is seen in one layout, in another: itself, or a copy that the program makes."""
        return self.source(seen[0], layout, seen[1])

    def rounded(self, seen: Seen) -> Seen:
        """An operand of a product with the numbers that bfloat16 has, where the backend says so and
        the library could not multiply those themselves."""
        if not self.backend.rounds_operands:
            return seen
        return self.copied(self.copied(seen, seen[1].in_bf16()), seen[1])

    def product(
        self, a: Seen, b: Seen, c: Seen, bias: Seen | None = None, relu: float | None = None,
        add: bool = False,
    ) -> None:  # fmt: skip
        """Append c = relu(a b + bias), or c += a b, for matrices or stacks of them."""
        library, operands = self.library, (a, b, bias, c)
        with self.backend.attributes(relu, add) as attributes:
            self.backend.use_threads()
            layouts = [seen[1].handle if seen else None for seen in operands]
            made = library.new("matmul_primitive_desc_create", library.engine, *layouts, attributes)
        self.add(made, dict(zip(("src", "weights", "bias", "dst"), operands, strict=True)))

    def relu(self, place: Seen, slope: float) -> None:
        """Append a ReLU in place."""
        library, layout = self.library, place[1].handle
        self.backend.use_threads()
        made = library.new(
            "eltwise_forward_primitive_desc_create", library.engine, FORWARD_TRAINING, RELU,
            layout, layout, slope, 0.0, None,
        )  # fmt: skip
        self.add(made, {"src": place, "dst": place})

    def run(self) -> None:
        for tensor in self._reads:
            if not tensor.fresh & NATIVE:
                tensor.sync()
        for tensor in self._writes:
            if tensor.buffer is None:
                tensor.allocate()
        if self._has_kernels:
            use_threads(self.backend.threads)
        for call, arguments in self._calls:
            status = call(*arguments)
            if status:
                raise BackendError(f"oneDNN could not run a primitive (status {status})")
        for tensor in self._writes:
            tensor.fresh = NATIVE


@dataclass
class Lowered:
    """Stands for a program where the library has no fast kernel: an op of the NumPy backend."""

    run: Callable[[], None]


@dataclass
class Staged:
    """A result that waits in scratch memory for its last step."""

    stand_in: OneDNNTensor
    tensor: Tensor
    layout: Descriptor
    accumulate: bool


class _Owned:
    """Destroys a primitive and its descriptor with the program that runs them."""

    def __init__(self, library: Library, primitive: int, primitive_descriptor: int) -> None:
        self.library, self.handles = library, (primitive, primitive_descriptor)

    def __del__(self) -> None:
        self.library.destroy("primitive", self.handles[0])
        self.library.destroy("primitive_desc", self.handles[1])
