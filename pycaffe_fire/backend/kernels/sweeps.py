"""Sweeps over the pixels of a block of channels, on vectors of channels, for kernels to call.

A compiler that cannot know whether what is read overlaps what is written works on single numbers.
So the instructions are written out here: a pixel is read before it is written.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from ..compiled import Intrinsic
from ..host import has_avx512
from ..instructions import pointer_to, stream
from .tiles import LANES

# Channels of a block of oneDNN's: in one vector, so that cache lines are gone through once.
WHOLE = 16 if has_avx512() else LANES
_CONTRACT = ("contract",)  # a product and a sum may become one instruction

# Of a pixel: the vectors read, those of the tables and of the sums so far, and the slope, to the
# vectors to be written and the new sums.
Body = Callable[..., tuple[Sequence[Any], Sequence[Any]]]


class Arithmetic:
    """Appends instructions on vectors."""

    def __init__(self, builder: Any, lanes: int = LANES) -> None:
        self.ir = importlib.import_module("llvmlite.ir")
        self.builder, self.lanes = builder, lanes
        self.vector = self.ir.VectorType(self.ir.FloatType(), lanes)
        self.zero, self.one = (self.ir.Constant(self.vector, [v] * lanes) for v in (0.0, 1.0))

    def plus(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_CONTRACT)

    def minus(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b, flags=_CONTRACT)

    def times(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=_CONTRACT)

    def where(self, a: Any, compares: str, b: Any, then: Any, other: Any) -> Any:
        """`then` where a compares so with b, else `other`; also of NaN."""
        return self.builder.select(self.builder.fcmp_ordered(compares, a, b), then, other)

    def where_positive(self, sign: Any, a: Any, b: Any) -> Any:
        return self.where(sign, ">", self.zero, a, b)

    def everywhere(self, number: Any, kind: Any = None) -> Any:
        """A vector of one number, of this type of vectors (default: of float32)."""
        kind = self.vector if kind is None else kind
        unknown = self.ir.Constant(kind, self.ir.Undefined)
        index = self.ir.Constant(self.ir.IntType(32), 0)
        one = self.builder.insert_element(unknown, number, index)
        indices = self.ir.VectorType(self.ir.IntType(32), self.lanes)
        return self.builder.shuffle_vector(
            one, unknown, self.ir.Constant(indices, [0] * self.lanes)
        )

    def address(self, pointer: Any, offset: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(pointer, [offset]), self.vector.as_pointer())

    def load(self, pointer: Any, offset: Any) -> Any:
        return self.builder.load(self.address(pointer, offset), align=4)

    def store(self, value: Any, pointer: Any, offset: Any) -> None:
        self.builder.store(value, self.address(pointer, offset), align=4)

    def stream(self, value: Any, pointer: Any, offset: Any) -> None:
        """The same past the caches."""
        stream(self.builder, value, self.address(pointer, offset))


def sweep(body: Body, reads: int, lanes: int = LANES) -> Callable[..., None]:
    """f(streams, place, pixels, b, tables, row, sums, sums_row, slope, past) for so many channels.

    Streams are arrays whose pixel k lies at place + k * b: the first `reads` are read, the others
    written, `past` the caches if so, by tasks that end with `finish_streams`. Tables hold one
    number for each channel from `row` on; sums receive theirs from `sums_row` on. Offsets count
    elements.
    """

    def on_pixels(
        typing: Any, streams: Any, place: Any, pixels: Any, b: Any, tables: Any, row: Any,
        sums: Any, sums_row: Any, slope: Any, past: Any,
    ) -> Any:  # fmt: skip
        types = importlib.import_module("numba.core.types")
        index = types.intp
        signature = types.void(
            streams, index, index, index, tables, index, sums, index, types.float32, types.boolean
        )

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            at = Arithmetic(builder, lanes)
            _write(context, at, signature, values, body, reads)
            return context.get_dummy_value()

        return signature, generate

    return Intrinsic(on_pixels)


def _write(
    context: Any, at: Arithmetic, signature: Any, values: Any, body: Body, reads: int
) -> None:
    tools, builder = importlib.import_module("numba.core.cgutils"), at.builder

    def pointers(which: int) -> list[Any]:
        kinds = signature.args[which]
        return [
            pointer_to(context, builder, kind, builder.extract_value(values[which], k))
            for k, kind in enumerate(kinds)
        ]

    streams, tables, sums = pointers(0), pointers(4), pointers(6)
    place, pixels, b, row, sums_row = (values[k] for k in (1, 2, 3, 5, 7))
    numbers = [at.load(table, row) for table in tables]
    slope = at.everywhere(values[8])
    totals = [tools.alloca_once(builder, at.vector) for _ in sums]
    for total in totals:
        builder.store(at.zero, total)

    def go(put: Callable[[Any, Any, Any], None]) -> None:
        with tools.for_range(builder, pixels) as loop:
            offset = builder.add(place, builder.mul(loop.index, b))
            found = [at.load(stream, offset) for stream in streams[:reads]]
            so_far = [builder.load(total) for total in totals]
            made, added = body(at, found, numbers, so_far, slope)
            for value, target in zip(made, streams[reads:], strict=True):
                put(value, target, offset)
            for value, total in zip(added, totals, strict=True):
                builder.store(value, total)

    if reads == len(streams):
        go(at.store)
    else:
        with builder.if_else(builder.trunc(values[9], at.ir.IntType(1))) as (past, kept):
            with past:
                go(at.stream)
            with kept:
                go(at.store)
    for total, target in zip(totals, sums, strict=True):
        at.store(builder.load(total), target, sums_row)
