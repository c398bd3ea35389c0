"""Windows of one pixel: a product of an image's channels with weights, for two vectors of outputs.

Layouts are N [C/b] S [b], b = LANES. A tile is a few pixels with OUTPUTS outputs: as many sums as
registers hold, so that two vectors of weights and a number of each pixel make 2 * pixels products.
Weights (groups, inputs, OUTPUTS) lie in the order in which a tile reads them: two streams of them a
power of two apart would be read from the same bank of a cache, one after the other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..compiled import Intrinsic, inlined, part, table_kernel
from ..instructions import at, min, pointer, view
from ..tasks import in_turns
from .sweeps import Arithmetic
from .tiles import LANES

OUTPUTS = 2 * LANES  # of a tile
MOST, FEWER = 6, 5  # pixels of a tile: sums, weights and a pixel's number fill 16 registers
ENOUGH = MOST * FEWER - MOST  # from here on, all numbers of pixels are made of tiles of these sizes


def _tile(pixels: int) -> Callable[..., None]:
    """f(x, w, bias, y, apart, blocks, slope): y = relu(x w + bias) for a tile.

    x and y point to the first pixel of a block of channels, which lie `apart`; there are `blocks`
    of inputs.
    """

    def on_pixels(
        typing: Any, x: Any, w: Any, bias: Any, y: Any, apart: Any, blocks: Any, slope: Any
    ) -> Any:
        types = importlib.import_module("numba.core.types")
        signature = types.void(x, w, bias, y, types.intp, types.intp, types.float32)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            _write(builder, pixels, *values)
            return context.get_dummy_value()

        return signature, generate

    return Intrinsic(on_pixels)


def _write(
    builder: Any, pixels: int, x: Any, w: Any, bias: Any, y: Any, apart: Any, blocks: Any,
    slope: Any,
) -> None:  # fmt: skip
    tools = importlib.import_module("numba.core.cgutils")
    at, number = Arithmetic(builder), tools.intp_t
    halves = range(OUTPUTS // LANES)
    first = [at.load(bias, number(half * LANES)) for half in halves]
    sums = [[tools.alloca_once(builder, at.vector) for _ in halves] for _ in range(pixels)]
    for total in sums:
        for half in halves:
            builder.store(first[half], total[half])
    with tools.for_range(builder, blocks) as loop:
        source = builder.gep(x, [builder.mul(loop.index, apart)])
        weights = builder.gep(w, [builder.mul(loop.index, number(LANES * OUTPUTS))])
        for channel in range(LANES):
            rows = [at.load(weights, number(channel * OUTPUTS + half * LANES)) for half in halves]
            for pixel, total in enumerate(sums):
                value = builder.load(builder.gep(source, [number(pixel * LANES + channel)]))
                everywhere = at.everywhere(value)
                for half in halves:
                    added = at.times(everywhere, rows[half])
                    builder.store(at.plus(builder.load(total[half]), added), total[half])
    below = at.everywhere(slope)
    for half in halves:
        target = builder.gep(y, [builder.mul(apart, number(half))])
        for pixel, total in enumerate(sums):
            value = builder.load(total[half])
            value = at.where_positive(value, value, at.times(value, below))
            at.store(value, target, number(pixel * LANES))


_large, _small, _single = _tile(MOST), _tile(FEWER), _tile(1)


@inlined
def _border(pixels: int, parts: int, number: int) -> int:
    return pixels * number // parts


@part
def _multiply(
    task: int, x: Any, w: Any, bias: Any, y: Any, inputs: int, outputs: int, pixels: int,
    parts: int, slope: float,
) -> None:  # fmt: skip
    """A group of outputs, for a part of a sample's pixels. The next tasks are the other groups: the
    pixels stay in a cache. The last two groups may have outputs in common, and give them the same
    bits."""
    groups = (outputs + OUTPUTS - 1) // OUTPUTS
    chunk, group = task // groups, task % groups
    first = min(group * OUTPUTS, outputs - OUTPUTS)
    sample, piece = chunk // parts, chunk % parts
    start, stop = _border(pixels, parts, piece), _border(pixels, parts, piece + 1)
    apart = pixels * LANES
    source = at(x, sample * inputs * pixels)
    target = at(y, (sample * outputs + first) * pixels)
    weights, shifts = at(w, group * inputs * OUTPUTS), at(bias, first)
    blocks = inputs // LANES
    if pixels == 1:
        _single(source, weights, shifts, target, apart, blocks, slope)
        return
    middle = stop - (start - stop) % MOST * FEWER
    for pixel in range(start, middle, MOST):
        place = pixel * LANES
        _large(at(source, place), weights, shifts, at(target, place), apart, blocks, slope)
    for pixel in range(middle, stop, FEWER):
        place = pixel * LANES
        _small(at(source, place), weights, shifts, at(target, place), apart, blocks, slope)


@table_kernel
def multiply(address: int) -> None:
    """y = relu(x w + bias), for a table of x, w, bias, y, samples, inputs, outputs, pixels (one, or
    ENOUGH for each part), parts, and the bits of the ReLU's slope, 1 for no ReLU."""
    table = pointer(address, np.int64)
    x, w = pointer(table[0], np.float32), pointer(table[1], np.float32)
    bias, y = pointer(table[2], np.float32), pointer(table[3], np.float32)
    samples, inputs, outputs, pixels, parts = table[4], table[5], table[6], table[7], table[8]
    slope = view(np.int32(table[9]), np.float32)
    count = samples * parts * ((outputs + OUTPUTS - 1) // OUTPUTS)
    in_turns(count, _multiply, (x, w, bias, y, inputs, outputs, pixels, parts, slope))
