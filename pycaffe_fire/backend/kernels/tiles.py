"""Square tiles of channel vectors, transformed as M tile M^T, for kernels to call.

A compiler that cannot know whether the rows of a tile overlap those of the result works on single
numbers. So the instructions are written out here, once for each matrix: all reads come first.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..compiled import Intrinsic
from ..instructions import pointer_to, stream

LANES = 8  # channels in a vector: divides the blocks of every layout that oneDNN likes

Matrix = Sequence[Sequence[float]]
_CONTRACT = ("contract",)  # a product and a sum may become one instruction


def transform(matrix: Matrix, lanes: int = LANES, past: bool = False) -> Callable[..., None]:
    """f(source, start, row, column, target, start, row, column): target = M source M^T.

    Starts and strides count elements of flat arrays, or from pointers; a tile's element is that
    many numbers. `past`: they are written past the caches, by tasks that end with `finish_streams`.
    """

    def write(at: _Writer, source: _Place, target: _Place) -> None:
        made = at.product(matrix, at.load(source, len(matrix[0])))
        at.store(target, made, past)

    return _tile_function(write, lanes)


def adding_transform(matrix: Matrix, lanes: int = LANES) -> Callable[..., None]:
    """The same, but target += M source M^T."""

    def write(at: _Writer, source: _Place, target: _Place) -> None:
        made = at.product(matrix, at.load(source, len(matrix[0])))
        there = at.load(target, len(matrix))
        at.store(target, [at.sums(a, b) for a, b in zip(made, there, strict=True)])

    return _tile_function(write, lanes)


def biased_transform(matrix: Matrix) -> Callable[..., None]:
    """f(..., bias, start): target = M source M^T + one bias for each channel."""

    def write(at: _Writer, source: _Place, target: _Place, bias: _Place) -> None:
        made = at.product(matrix, at.load(source, len(matrix[0])))
        everywhere = at.load(bias, 1)[0] * len(matrix)
        at.store(target, [at.sums(row, everywhere) for row in made])

    return _channel_function(write)


def summing_transform(matrix: Matrix) -> Callable[..., None]:
    """f(..., sums, start): target = M source M^T, and sums += all of the source, by channel."""

    def write(at: _Writer, source: _Place, target: _Place, sums: _Place) -> None:
        tile = at.load(source, len(matrix[0]))
        total = at.load(sums, 1)[0]
        for row in tile:
            for value in row:
                total = at.sums(total, [value])
        at.store(sums, [total])
        at.store(target, at.product(matrix, tile))

    return _channel_function(write)


class _Place:
    """Where a tile lies: a pointer to its array, the offset of its first element, strides of rows
    and columns unless it is a single element."""

    def __init__(self, pointer: Any, start: Any, *strides: Any) -> None:
        self.pointer, self.start, self.strides = pointer, start, strides


class _Writer:
    """Appends instructions on vectors and tiles (lists of rows of vectors)."""

    def __init__(self, builder: Any, lanes: int) -> None:
        self.ir = importlib.import_module("llvmlite.ir")
        self.builder, self.lanes = builder, lanes
        self.vector = self.ir.VectorType(self.ir.FloatType(), lanes)

    def _address(self, place: _Place, row: int, column: int) -> Any:
        at, build = place.start, self.builder
        for index, stride in zip((row, column), place.strides, strict=False):
            at = build.add(at, build.mul(stride, self.ir.Constant(self.ir.IntType(64), index)))
        return build.bitcast(build.gep(place.pointer, [at]), self.vector.as_pointer())

    def load(self, place: _Place, size: int) -> list[list[Any]]:
        return [
            [self.builder.load(self._address(place, i, j), align=4) for j in range(size)]
            for i in range(size)
        ]

    def store(self, place: _Place, tile: list[list[Any]], past: bool = False) -> None:
        for i, row in enumerate(tile):
            for j, value in enumerate(row):
                address = self._address(place, i, j)
                if past:
                    stream(self.builder, value, address)
                else:
                    self.builder.store(value, address, align=4)

    def sums(self, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        return [self.builder.fadd(x, y, flags=_CONTRACT) for x, y in zip(a, b, strict=True)]

    def product(self, matrix: Matrix, tile: list[list[Any]]) -> list[list[Any]]:
        """matrix tile matrix^T: first down the columns, then along the rows."""
        columns = [
            [self._weigh(row, column) for row in matrix] for column in zip(*tile, strict=True)
        ]
        return [[self._weigh(row, line) for row in matrix] for line in zip(*columns, strict=True)]

    def _weigh(self, weights: Sequence[float], vectors: Sequence[Any]) -> Any:
        total = None
        for weight, vector in zip(weights, vectors, strict=True):
            if weight == 0:
                continue
            factor = self.ir.Constant(self.vector, [float(np.float32(weight))] * self.lanes)
            term = vector if weight == 1 else self.builder.fmul(vector, factor, flags=_CONTRACT)
            total = term if total is None else self.builder.fadd(total, term, flags=_CONTRACT)
        return total


def _tile_function(write: Callable[..., None], lanes: int) -> Callable[..., None]:
    """A function of two places: source and target."""

    def on_tiles(
        typing: Any, source: Any, start: Any, row: Any, column: Any,
        target: Any, start_2: Any, row_2: Any, column_2: Any,
    ) -> Any:  # fmt: skip
        types = importlib.import_module("numba.core.types")
        index = (types.intp,) * 3
        return types.void(source, *index, target, *index), _generator(write, lanes)

    return Intrinsic(on_tiles)


def _channel_function(write: Callable[..., None]) -> Callable[..., None]:
    """A function of three places: source, target and a vector of channels."""

    def on_tiles(
        typing: Any, source: Any, start: Any, row: Any, column: Any,
        target: Any, start_2: Any, row_2: Any, column_2: Any, channels: Any, start_3: Any,
    ) -> Any:  # fmt: skip
        types = importlib.import_module("numba.core.types")
        index = (types.intp,) * 3
        signature = types.void(source, *index, target, *index, channels, index[0])
        return signature, _generator(write, LANES)

    return Intrinsic(on_tiles)


def _generator(write: Callable[..., None], lanes: int) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        places = []
        for i in range(0, len(values), 4):
            numbers = pointer_to(context, builder, signature.args[i], values[i])
            places.append(_Place(numbers, values[i + 1], *values[i + 2 : i + 4]))
        write(_Writer(builder, lanes), *places)
        return context.get_dummy_value()

    return generate
