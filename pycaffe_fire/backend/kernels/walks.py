"""Walks along rows of pixels, on vectors of channels, where each stream has a pace of its own.

Like sweeps, but a body reads at several places beside a pixel, as windows do, and sums go on where
the last walk left them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from ..compiled import Intrinsic
from .sweeps import Arithmetic
from .tiles import LANES

_PREFETCH = (0, 3, 1)  # to read, into all caches, data


class Cursor:
    """Where a stream is."""

    def __init__(self, at: Arithmetic, pointer: Any, offset: Any) -> None:
        self._at, self._pointer, self._offset = at, pointer, offset

    def read(self, ahead: int = 0) -> Any:
        """The vector that lies so many vectors further on."""
        build = self._at.builder
        place = build.add(self._offset, self._at.ir.Constant(self._offset.type, ahead * LANES))
        return self._at.load(self._pointer, place)

    def prefetch(self) -> None:
        """Let it come into the cache: somebody will read it."""
        build, ir = self._at.builder, self._at.ir
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        call = build.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        place = build.bitcast(build.gep(self._pointer, [self._offset]), byte)
        build.call(call, [place, *map(number, _PREFETCH)])

    def write(self, value: Any) -> None:
        self._at.store(value, self._pointer, self._offset)


# Of a pixel: the streams' cursors, the vectors of the tables, of the taps and of the sums so far,
# and the slope, to the new sums.
Body = Callable[..., Sequence[Any]]


def walk(
    body: Body, taps: int = 0, sums: Sequence[int] = (), at_once: int = 1
) -> Callable[..., None]:
    """f(streams, steps, count, tables, taps, sums, slope) for LANES channels.

    Streams are pointers, which go on by their step for each of `count` pixels; tables are pointers
    to one vector each. Taps, which are read, and groups of sums, which are added to, are some
    vectors each: a pointer to the first, and how far apart they lie; or () for no taps. So many
    pixels are taken `at_once`, with sums of their own.
    """

    def on_rows(
        typing: Any, streams: Any, steps: Any, count: Any, tables: Any, taps_at: Any, sums_at: Any,
        slope: Any,
    ) -> Any:  # fmt: skip
        types = importlib.import_module("numba.core.types")
        paces = types.UniTuple(types.intp, len(streams))

        def vectors(given: Any) -> Any:
            return types.Tuple((given[0], types.intp)) if len(given) else given

        signature = types.void(
            streams, paces, types.intp, tables, vectors(taps_at),
            types.Tuple([vectors(group) for group in sums_at]), types.float32,
        )  # fmt: skip

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            _Walk(builder, values, body).write(taps, sums, at_once)
            return context.get_dummy_value()

        return signature, generate

    return Intrinsic(on_rows)


class _Walk:
    """Writes the instructions of one walk."""

    def __init__(self, builder: Any, values: Any, body: Body) -> None:
        self.tools = importlib.import_module("numba.core.cgutils")
        self.builder, self.body, self.at = builder, body, Arithmetic(builder)
        unpack = self.tools.unpack_tuple
        self.streams, self.steps = unpack(builder, values[0]), unpack(builder, values[1])
        self.count, start = values[2], self._number(0)
        self.tables = [self.at.load(table, start) for table in unpack(builder, values[3])]
        self.taps, self.sums = unpack(builder, values[4]), unpack(builder, values[5])
        self.slope = self.at.everywhere(values[6])

    def _number(self, value: int) -> Any:
        return self.tools.intp_t(value)

    def _places(self, given: Sequence[Any], count: int) -> list[tuple[Any, Any]]:
        """Pointer and offset of each of some vectors."""
        return [(given[0], self.builder.mul(given[1], self._number(k))) for k in range(count)]

    def write(self, taps: int, sums: Sequence[int], at_once: int) -> None:
        build, tools = self.builder, self.tools
        weights = [self.at.load(*place) for place in self._places(self.taps, taps)]
        places = [
            place
            for group, count in zip(self.sums, sums, strict=True)
            for place in self._places(tools.unpack_tuple(build, group), count)
        ]
        totals = [
            [tools.alloca_once(build, self.at.vector) for _ in places] for _ in range(at_once)
        ]
        for k, place in enumerate(places):
            build.store(self.at.load(*place), totals[0][k])
            for each in totals[1:]:
                build.store(self.at.zero, each[k])
        whole = build.mul(
            build.sdiv(self.count, self._number(at_once)), self._number(at_once)
        )  # fmt: skip
        if at_once > 1:
            with tools.for_range_slice(
                build, self._number(0), whole, self._number(at_once)
            ) as (index, _):  # fmt: skip
                for k in range(at_once):
                    self._step(build.add(index, self._number(k)), weights, totals[k])
        rest = whole if at_once > 1 else self._number(0)
        with tools.for_range_slice(build, rest, self.count, self._number(1)) as (index, _):
            self._step(index, weights, totals[0])
        for k, place in enumerate(places):
            total = build.load(totals[0][k])
            for each in totals[1:]:
                total = self.at.plus(total, build.load(each[k]))
            self.at.store(total, *place)

    def _step(self, index: Any, weights: list[Any], totals: list[Any]) -> None:
        build = self.builder
        cursors = [
            Cursor(self.at, stream, build.mul(index, step))
            for stream, step in zip(self.streams, self.steps, strict=True)
        ]
        so_far = [build.load(total) for total in totals]
        made = self.body(self.at, cursors, self.tables, weights, so_far, self.slope)
        for value, total in zip(made, totals, strict=True):
            build.store(value, total)
