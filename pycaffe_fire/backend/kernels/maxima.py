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


def max_of_window(vectors: int) -> Callable[..., None]:
    """f(x, start, strides, sizes, cells, y, winners, place) for so many times LANES channels.

    The window is `sizes` (rows, columns) of pixels, the first at x[start], `strides` from one to
    the next; its cells are numbered `cells` = (the first, what a row adds). y and winners get their
    numbers from `place` on. NaN wins over every number, the first of equals over the others.
    """

    def on_window(
        typing: Any, x: Any, start: Any, strides: Any, sizes: Any, cells: Any, y: Any,
        winners: Any, place: Any,
    ) -> Any:  # fmt: skip
        types = importlib.import_module("numba.core.types")
        pair = types.UniTuple(types.intp, 2)
        signature = types.void(x, types.intp, pair, pair, pair, y, winners, types.intp)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            _write(context, builder, signature, values, vectors)
            return context.get_dummy_value()

        return signature, generate

    return Intrinsic(on_window)


def _write(context: Any, builder: Any, signature: Any, values: Any, vectors: int) -> None:
    tools = importlib.import_module("numba.core.cgutils")
    at = Arithmetic(builder)
    x, y, winners = (
        context.make_array(signature.args[k])(context, builder, values[k]).data for k in (0, 5, 6)
    )
    (down, right), (rows, columns), (first, along) = (
        tools.unpack_tuple(builder, values[k], 2) for k in (2, 3, 4)
    )
    numbers, small = (at.ir.VectorType(at.ir.IntType(bits), LANES) for bits in (32, 8))
    lowest = at.ir.Constant(at.vector, [float(LOWEST)] * LANES)
    zeros = at.ir.Constant(numbers, [0] * LANES)
    found = [
        (tools.alloca_once_value(builder, lowest), tools.alloca_once_value(builder, zeros))
        for _ in range(vectors)
    ]
    lanes = [at.ir.Constant(at.ir.IntType(64), LANES * k) for k in range(vectors)]
    with tools.for_range(builder, rows) as row, tools.for_range(builder, columns) as column:
        offset = builder.add(builder.mul(row.index, down), builder.mul(column.index, right))
        pixel = builder.add(values[1], offset)
        number = builder.add(first, builder.add(builder.mul(row.index, along), column.index))
        here = at.everywhere(builder.trunc(number, at.ir.IntType(32)), numbers)
        for lane, (best, cell) in zip(lanes, found, strict=True):
            value, old = at.load(x, builder.add(pixel, lane)), builder.load(best)
            above = builder.fcmp_unordered(">", value, old)
            wins = builder.and_(above, builder.fcmp_ordered("==", old, old))
            builder.store(builder.select(wins, value, old), best)
            builder.store(builder.select(wins, here, builder.load(cell)), cell)
    for lane, (best, cell) in zip(lanes, found, strict=True):
        place = builder.add(values[7], lane)
        at.store(builder.load(best), y, place)
        target = builder.bitcast(builder.gep(winners, [place]), small.as_pointer())
        builder.store(builder.trunc(builder.load(cell), small), target, align=1)
