"""Concatenation: whole channels of samples copied by our kernel; else one primitive forward, one
copy per branch backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import BackendError
from ..blob import Blob
from ..compiled import available, use_threads
from ..kernels import joined as kernels
from ..kernels.sweeps import WHOLE
from ..plans import JoinPlan, Rectified
from ..tensor import Array, Layout, Tensor
from .grids import read, written
from .layouts import Argument, Descriptor, Program
from .library import MULTIPLE_SOURCE, handles

if TYPE_CHECKING:
    from . import OneDNNBackend


NOTHING = np.empty((0, 0), np.float32)


class Concat(JoinPlan):
    """The output takes the layout that suits the inputs as they lie."""

    def __init__(self, backend: OneDNNBackend, xs: Sequence[Blob], y: Blob, axis: int) -> None:
        self.backend, self.xs, self.y, self.axis = backend, list(xs), y, axis
        plain = Descriptor.contiguous(backend.library, y.shape)
        made = self._primitive(None)
        layout = Descriptor.chosen(y.shape, made, "dst", plain)
        if not layout.is_plain and layout.grid is None:
            # For sources that are stored differently the library may move channels before samples,
            # a layout for which some of its primitives compute wrong sums.
            layout = plain
            backend.library.destroy("primitive_desc", made)
            made = self._primitive(plain)
        y.lay_out(layout)
        arguments: dict[str | int, Argument] = {
            MULTIPLE_SOURCE + i: x.value for i, x in enumerate(xs)
        }
        self._forward = Program(backend)
        self._forward.add(made, {**arguments, "dst": y.value})
        self._backward: dict[int, Program] = {}
        self._rectified: set[int] = set()
        self._suits_kernel = self._in_whole_vectors([blob.value for blob in (*xs, y)])
        if self._suits_kernel:
            backend.expect([kernels.put], [kernels.take])

    def _primitive(self, target: Descriptor | None) -> int:
        """A primitive descriptor that writes `target`, or a layout that the library chooses."""
        library, layouts = self.backend.library, [x.value.layout for x in self.xs]
        sources = handles([d.handle for d in layouts if isinstance(d, Descriptor)])
        self.backend.use_threads()
        return library.new(
            "concat_primitive_desc_create", library.engine, target and target.handle,
            len(layouts), self.axis, sources, None,
        )  # fmt: skip

    @property
    def rectified(self) -> Rectified:
        gradients = [blob.gradient for blob in (*self.xs, self.y)]
        return self._rectified if self._in_whole_vectors(gradients) else None

    def _in_whole_vectors(self, tensors: Sequence[Tensor]) -> bool:
        form, *others = {_whole_blocks(tensor.layout) for tensor in tensors}
        if self.axis != 1 or form is None or others:
            return False
        return available() and form[1] % WHOLE == 0

    def forward(self, activate: bool = True) -> None:
        if not self._suits_kernel:
            self._forward.run()
            return
        whole, place = _by_sample(written(self.y.value)), 0
        use_threads(self.backend.threads)
        for x in self.xs:
            part = _by_sample(read(x.value))
            kernels.put(part, whole, place)
            place += part.shape[1]

    def places(self) -> Sequence[int] | None:
        """Channels of one image lie one after the other, if no block is filled up."""
        if self.axis != 1 or self.y.shape[0] != 1:
            return None
        found, count = [], 0
        form = _whole_blocks(self.y.value.layout)
        for x in self.xs:
            if form is None or _whole_blocks(x.value.layout) != form:
                return None
            found.append(count)
            count += x.count
        return found

    def backward(self, wanted: Sequence[bool]) -> None:
        if self.rectified is not None:
            self._take_parts(wanted)
            return
        offset = 0
        for i, x in enumerate(self.xs):
            if wanted[i]:
                if i not in self._backward:
                    self._backward[i] = self._part_program(x, offset)
                self._backward[i].run()
            offset += x.shape[self.axis]

    def _take_parts(self, wanted: Sequence[bool]) -> None:
        whole, place = _by_sample(read(self.y.gradient)), 0
        use_threads(self.backend.threads)
        for i, x in enumerate(self.xs):
            if wanted[i]:
                values = _by_sample(read(x.value)) if i in self._rectified else NOTHING
                kernels.take(whole, place, _by_sample(written(x.gradient)), values)
            place += x.count // x.shape[0]

    def _part_program(self, x: Blob, offset: int) -> Program:
        start = [0] * len(x.shape)
        start[self.axis] = offset
        program = Program(self.backend)
        dy = self.y.gradient
        layout = dy.layout
        assert isinstance(layout, Descriptor)
        try:
            part = layout.part(x.shape, start)
        except BackendError:  # the cut goes through a block
            plain = program.scratch(layout.plain)
            program.reorder(dy, plain)
            dy, part = plain, layout.plain.part(x.shape, start)
        program.reorder(dy, x.gradient, source_layout=part)
        return program


def _whole_blocks(layout: Layout) -> tuple[int, int] | None:
    """Pixels and channels of a block; None without channels or where the last block is padded."""
    grid = layout.grid if len(layout.shape) > 1 else None
    if grid is None or grid[1] * grid[3] != layout.shape[1]:
        return None
    return grid[2:]


def _by_sample(values: Array) -> Array:
    return values.reshape(values.shape[0], -1)
