"""Gradients of the weights of convolutions whose windows are single pixels.

They are products of matrices whose inner dimension is all pixels of a batch. Tiles of the result
stay in registers while a run of pixels goes by; which thread makes a tile does not change its bits.
Layouts have blocks of LANES channels.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from ..compiled import Intrinsic, inlined, kernel, part
from ..instructions import at, min
from ..tasks import in_parallel
from .sweeps import Arithmetic
from .tiles import LANES
from .walks import walk

ROWS = 4  # input channels of a tile: with three vectors of outputs, 12 of 16 registers
RUN = 800  # pixels that go by, at most: few enough that a cache holds what tiles read of them
FEW = 5  # blocks of outputs are not shared out: tiles would be narrow
WHOLE = LANES * LANES  # weights of a block of inputs and a block of outputs


def _tile(vectors: int) -> Callable[..., None]:
    """f(x, dy, apart, dw, weights_apart, pixels): adds to a tile of ROWS inputs and so many blocks
    of outputs, which lie so far apart in dy and in dw."""

    def on_pixels(
        typing: Any, x: Any, dy: Any, apart: Any, dw: Any, weights_apart: Any, pixels: Any
    ) -> Any:
        types = importlib.import_module("numba.core.types")
        index = types.intp

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            _write(builder, vectors, *values)
            return context.get_dummy_value()

        return types.void(x, dy, index, dw, index, index), generate

    return Intrinsic(on_pixels)


def _write(
    build: Any, vectors: int, x: Any, dy: Any, apart: Any, dw: Any, weights_apart: Any, pixels: Any
) -> None:
    tools = importlib.import_module("numba.core.cgutils")
    arithmetic, number = Arithmetic(build), tools.intp_t
    tile = [(row, k) for row in range(ROWS) for k in range(vectors)]
    totals = {each: tools.alloca_once_value(build, arithmetic.zero) for each in tile}
    with tools.for_range(build, pixels) as loop:
        place = build.mul(loop.index, number(LANES))
        outputs = [
            arithmetic.load(dy, build.add(place, build.mul(apart, number(k))))
            for k in range(vectors)
        ]
        for row in range(ROWS):
            one = build.load(build.gep(x, [build.add(place, number(row))]))
            factor = arithmetic.everywhere(one)
            for k in range(vectors):
                product = arithmetic.times(factor, outputs[k])
                so_far = build.load(totals[row, k])
                build.store(arithmetic.plus(so_far, product), totals[row, k])
    for row, k in tile:
        place = build.add(build.mul(weights_apart, number(k)), number(row * LANES))
        there = arithmetic.load(dw, place)
        arithmetic.store(arithmetic.plus(there, build.load(totals[row, k])), dw, place)


_one, _two, _three = (_tile(vectors) for vectors in (1, 2, 3))


@inlined
def _place(rows: int, block: int, one: int) -> int:
    """Where so many times ROWS inputs end, if blocks of them and single ones lie so far apart."""
    per_block = LANES // ROWS
    return rows // per_block * block + rows % per_block * ROWS * one


def _total_body(at: Any, here: Any, tables: Any, taps: Any, sums: Any, slope: Any) -> Any:
    return [at.plus(sums[0], here[0].read())]


_add_pixels = walk(_total_body, sums=(1,), at_once=4)


@part
def _share(task: int, tasks: int, x: Any, dy: Any, dw: Any, db: Any) -> None:
    """Some of the outputs with all inputs, or all outputs with some of the inputs."""
    num, inputs, pixels, _ = x.shape
    outputs = dy.shape[1]
    first, stop, top, bottom = 0, outputs, 0, inputs * (LANES // ROWS)
    if outputs >= FEW * tasks:
        first, stop = outputs * task // tasks, outputs * (task + 1) // tasks
    else:
        top, bottom = bottom * task // tasks, bottom * (task + 1) // tasks
    apart, weights_apart = pixels * LANES, inputs * WHOLE
    runs = (pixels + RUN - 1) // RUN
    for n in range(num):
        for run in range(runs):
            start = pixels * run // runs
            count = pixels * (run + 1) // runs - start
            block = first
            while block < stop:
                left = stop - block
                width = 2 if left == 4 else min(left, 3)  # 2 and 2 rather than 3 and 1
                g = at(dy, ((n * outputs + block) * pixels + start) * LANES)
                for rows in range(top, bottom):
                    source = at(x, (n * inputs * pixels + start) * LANES + _place(rows, apart, 1))
                    weights = at(dw, block * weights_apart + _place(rows, WHOLE, LANES))
                    if width == 3:
                        _three(source, g, apart, weights, weights_apart, count)
                    elif width == 2:
                        _two(source, g, apart, weights, weights_apart, count)
                    else:
                        _one(source, g, apart, weights, weights_apart, count)
                if db.size and top == 0 < bottom:
                    for k in range(width):
                        total = at(db, (block + k) * LANES)
                        _add_pixels(
                            (at(g, k * apart),), (LANES,), count, (), (), ((total, 0),), 0.0
                        )
                block += width


@kernel("f4[:, :, :, ::1], f4[:, :, :, ::1], f4[::1], f4[::1], i8")
def add_gradients(x: Any, dy: Any, dw: Any, db: Any, tasks: int) -> None:
    """dw += dy x^T, of blocks (outputs, inputs, LANES inputs, LANES outputs), and db += the sum of
    dy unless it is empty, in so many tasks."""
    in_parallel(tasks, _share, (tasks, x, dy, dw, db))
