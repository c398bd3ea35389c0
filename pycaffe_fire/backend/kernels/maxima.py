"""The maximum of a window of pixels and where it was, on vectors of channels, for kernels to call.

A compiler that cannot know whether what is read overlaps what is written works on single numbers.
So the instructions are written out here, as in sweeps.py.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiled import Intrinsic
from .sweeps import Arithmetic
from .tiles import LANES

LOWEST = np.finfo(np.float32).min  # what Caffe begins with
SILENT = 128  # added to the number of a cell whose maximum is not above 0


def max_of_window(
    vectors: int, lanes: int = LANES, size: tuple[int, int] | None = None, marks: bool = False
) -> Callable[..., None]:
    """f(x, start, strides, sizes, cells, y, winners, place) for so many vectors of channels.

    The window is `sizes` (rows, columns) of pixels, the first at x[start], `strides` from one to
    the next; its cells are numbered `cells` = (the first, what a row adds). y and winners get their
    numbers from `place` on. NaN wins over every number, the first of equals over the others.
    With a `size` all windows have that one, from cell 0 on. `marks`: see SILENT.
    """

    def on_window(
        typing: Any, x: Any, start: Any, strides: Any, sizes: Any, cells: Any, y: Any,
        winners: Any, place: Any,
    ) -> Any:  # fmt: skip
        types = importlib.import_module("numba.core.types")
        pair = types.UniTuple(types.intp, 2)
        signature = types.void(x, types.intp, pair, pair, pair, y, winners, types.intp)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            arrays = [
                context.make_array(signature.args[k])(context, builder, values[k]).data
                for k in (0, 5, 6)
            ]
            _Window(builder, arrays, values, vectors, lanes).write(size, marks)
            return context.get_dummy_value()

        return signature, generate

    return Intrinsic(on_window)


class _Window:
    """Writes the instructions for one window."""

    def __init__(
        self, builder: Any, arrays: list[Any], values: Any, vectors: int, lanes: int
    ) -> None:
        self.tools = importlib.import_module("numba.core.cgutils")
        self.builder, self.at = builder, Arithmetic(builder, lanes)
        self.x, self.y, self.winners = arrays
        self.start, self.place = values[1], values[7]
        self.strides, self.sizes, self.cells = (
            self.tools.unpack_tuple(builder, values[k], 2) for k in (2, 3, 4)
        )
        ir = self.at.ir
        self.numbers, self.small = (ir.VectorType(ir.IntType(bits), lanes) for bits in (32, 8))
        lowest = ir.Constant(self.at.vector, [float(LOWEST)] * lanes)
        zeros = ir.Constant(self.numbers, [0] * lanes)
        self.found = [
            (self.tools.alloca_once(builder, self.at.vector),
             self.tools.alloca_once(builder, self.numbers))
            for _ in range(vectors)
        ]  # fmt: skip
        for best, cell in self.found:
            builder.store(lowest, best)
            builder.store(zeros, cell)
        self.lanes = [self._integer(lanes * k) for k in range(vectors)]

    def _integer(self, value: int) -> Any:
        return self.tools.intp_t(value)

    def write(self, size: tuple[int, int] | None, marks: bool) -> None:
        build = self.builder
        if size is None:
            (rows, columns), (first, along), loop = self.sizes, self.cells, self.tools.for_range
            with loop(build, rows) as row, loop(build, columns) as column:
                further = build.add(build.mul(row.index, along), column.index)
                self._look(row.index, column.index, build.add(first, further))
        else:
            for cell in range(size[0] * size[1]):
                row, column = divmod(cell, size[1])
                self._look(*map(self._integer, (row, column, cell)))
        for lane, (best, cell) in zip(self.lanes, self.found, strict=True):
            self._give(build.add(self.place, lane), build.load(best), build.load(cell), marks)

    def _look(self, row: Any, column: Any, number: Any) -> None:
        """At a pixel, which is the cell of that number."""
        build, at = self.builder, self.at
        down, right = self.strides
        offset = build.add(build.mul(row, down), build.mul(column, right))
        pixel = build.add(self.start, offset)
        here = at.everywhere(build.trunc(number, at.ir.IntType(32)), self.numbers)
        for lane, (best, cell) in zip(self.lanes, self.found, strict=True):
            value, old = at.load(self.x, build.add(pixel, lane)), build.load(best)
            above = build.fcmp_unordered(">", value, old)
            wins = build.and_(above, build.fcmp_ordered("==", old, old))
            build.store(build.select(wins, value, old), best)
            build.store(build.select(wins, here, build.load(cell)), cell)

    def _give(self, place: Any, best: Any, cell: Any, marks: bool) -> None:
        build, at = self.builder, self.at
        at.store(best, self.y, place)
        if marks:
            silent = build.add(cell, at.ir.Constant(self.numbers, [SILENT] * at.lanes))
            cell = build.select(build.fcmp_ordered(">", best, at.zero), cell, silent)
        target = build.bitcast(build.gep(self.winners, [place]), self.small.as_pointer())
        build.store(build.trunc(cell, self.small), target, align=1)
