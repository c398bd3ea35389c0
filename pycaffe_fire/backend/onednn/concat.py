"""Concatenation: one primitive forward, one copy per branch backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import BackendError
from ..blob import Blob
from ..plans import JoinPlan
from .layouts import Argument, Descriptor, Program
from .library import MULTIPLE_SOURCE, handles

if TYPE_CHECKING:
    from . import OneDNNBackend


class Concat(JoinPlan):
    """The output takes the layout that suits the inputs as they lie."""

    def __init__(self, backend: OneDNNBackend, xs: Sequence[Blob], y: Blob, axis: int) -> None:
        self.backend, self.xs, self.y, self.axis = backend, list(xs), y, axis
        library = backend.library
        layouts = [x.value.layout for x in xs]
        sources = handles([d.handle for d in layouts if isinstance(d, Descriptor)])
        backend.use_threads()
        made = library.new(
            "concat_primitive_desc_create", library.engine, None, len(layouts), axis, sources, None
        )
        plain = Descriptor.contiguous(library, y.shape)
        y.lay_out(Descriptor.chosen(y.shape, made, "dst", plain))
        arguments: dict[str | int, Argument] = {
            MULTIPLE_SOURCE + i: x.value for i, x in enumerate(xs)
        }
        self._forward = Program(backend)
        self._forward.add(made, {**arguments, "dst": y.value})
        self._backward: dict[int, Program] = {}

    def forward(self, activate: bool = True) -> None:
        self._forward.run()

    def places(self) -> Sequence[int] | None:
        """Channels of one image lie one after the other, if no block is filled up."""
        if self.axis != 1 or self.y.shape[0] != 1:
            return None
        found, count = [], 0
        form = _whole_blocks(self.y)
        for x in self.xs:
            if form is None or _whole_blocks(x) != form:
                return None
            found.append(count)
            count += x.count
        return found

    def backward(self, wanted: Sequence[bool]) -> None:
        offset = 0
        for i, x in enumerate(self.xs):
            if wanted[i]:
                if i not in self._backward:
                    self._backward[i] = self._part_program(x, offset)
                self._backward[i].run()
            offset += x.shape[self.axis]

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


def _whole_blocks(blob: Blob) -> tuple[int, int] | None:
    """Pixels and channels of a block; None where the last block has other numbers in it, too."""
    grid = blob.value.layout.grid
    if grid is None or grid[1] * grid[3] != blob.shape[1]:
        return None
    return grid[2:]
