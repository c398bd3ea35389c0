"""What kernels use in place of some functions of Python and NumPy, and plain memory to walk along.

numba knows those, too, but each makes it compile functions of its own, and slices of arrays take
it long: these become a few instructions where they stand.
"""

from __future__ import annotations

import builtins
import importlib
import platform
from typing import Any

from .compiled import Intrinsic

ALIGNMENT = 64  # bytes: a line of the cache
LARGE = 2**20  # elements: more than a core's caches hold until somebody reads them


def pointer_to(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """The first element of an array, while instructions are written; a pointer is one."""
    if hasattr(kind, "as_array"):
        return context.make_array(kind)(context, builder, value).data
    return value


def _write_at(typing: Any, source: Any, offset: Any) -> Any:
    """at(array or pointer, offset): a pointer to an element, counted through the whole array."""
    types = importlib.import_module("numba.core.types")
    pointer = source if isinstance(source, types.CPointer) else types.CPointer(source.dtype)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.gep(pointer_to(context, builder, source, values[0]), [values[1]])

    return pointer(source, types.intp), generate


def _write_pointer(typing: Any, address: Any, kind: Any) -> Any:
    """pointer(address, kind): to numbers of that kind."""
    types = importlib.import_module("numba.core.types")
    result = types.CPointer(kind.dtype)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[0], context.get_value_type(result))

    return result(types.intp, kind), generate


def _write_view(typing: Any, value: Any, kind: Any) -> Any:
    """view(value, kind): the same bits as a number of another kind; or such a pointer."""
    types = importlib.import_module("numba.core.types")
    points = isinstance(value, types.CPointer)
    result = types.CPointer(kind.dtype) if points else kind.dtype

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], context.get_value_type(result))

    return result(value, kind), generate


def _write_choice(comparison: str) -> Any:
    """The second of two numbers where it compares so with the first, as Python has it for NaN."""

    def choose(typing: Any, a: Any, b: Any) -> Any:
        types = importlib.import_module("numba.core.types")
        kind = typing.unify_types(a, b)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            floats = isinstance(kind, types.Float)
            compare = builder.fcmp_ordered if floats else builder.icmp_signed
            return builder.select(compare(comparison, values[1], values[0]), values[1], values[0])

        return (kind(kind, kind), generate) if getattr(kind, "signed", True) else None

    return choose


def _write_room(zeroed: bool) -> Any:
    """f(count, kind): a pointer to so many numbers, until it is given to `free`.

    An array would be gone when it is named for the last time: pointers do not count for numba.
    """

    def allocate(typing: Any, count: Any, kind: Any) -> Any:
        types = importlib.import_module("numba.core.types")
        tools = importlib.import_module("numba.core.cgutils")
        ir = importlib.import_module("llvmlite.ir")
        result = types.CPointer(kind.dtype)

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            item = context.get_abi_sizeof(context.get_data_type(kind.dtype))
            size = builder.mul(values[0], tools.intp_t(item))
            call = ir.FunctionType(tools.voidptr_t, [tools.intp_t])
            start = builder.call(
                tools.get_or_insert_function(builder.module, call, "NRT_Allocate"),
                [builder.add(size, tools.intp_t(ALIGNMENT))],
            )
            line = builder.add(builder.ptrtoint(start, tools.intp_t), tools.intp_t(ALIGNMENT))
            line = builder.and_(line, tools.intp_t(-ALIGNMENT))
            numbers = builder.inttoptr(line, context.get_value_type(result))
            builder.store(start, _before(builder, numbers))
            if zeroed:
                tools.memset(builder, builder.bitcast(numbers, tools.voidptr_t), size, 0)
            return numbers

        return result(types.intp, kind), generate

    return allocate


def _before(builder: Any, numbers: Any) -> Any:
    """Where the start of a piece of memory is kept: right before the numbers in it."""
    tools = importlib.import_module("numba.core.cgutils")
    starts = builder.bitcast(numbers, tools.voidptr_t.as_pointer())
    return builder.gep(starts, [tools.intp_t(-1)])


def _write_free(typing: Any, numbers: Any) -> Any:
    """free(pointer): what `empty` or `zeros` gave."""
    types = importlib.import_module("numba.core.types")
    tools = importlib.import_module("numba.core.cgutils")
    ir = importlib.import_module("llvmlite.ir")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        call = ir.FunctionType(ir.VoidType(), [tools.voidptr_t])
        builder.call(
            tools.get_or_insert_function(builder.module, call, "NRT_Free"),
            [builder.load(_before(builder, values[0]))],
        )
        return context.get_dummy_value()

    return types.void(numbers), generate


def _write_copy(typing: Any, source: Any, target: Any, count: Any) -> Any:
    """copy(source, target, count): so many elements from one pointer to another, which lie apart.
    A loop would ask again and again whether they do, which short runs are not worth, and takes much
    longer to compile."""
    types = importlib.import_module("numba.core.types")
    tools = importlib.import_module("numba.core.cgutils")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        size = context.get_abi_sizeof(context.get_data_type(source.dtype))
        tools.raw_memcpy(builder, values[1], values[0], values[2], size)
        return context.get_dummy_value()

    return types.void(source, target, types.intp), generate


def _write_stream_copy(typing: Any, source: Any, target: Any, count: Any) -> Any:
    """stream_copy(source, target, count): the same for float32, but whole lines go past the caches.
    See `stream`."""
    types = importlib.import_module("numba.core.types")
    tools = importlib.import_module("numba.core.cgutils")
    ir = importlib.import_module("llvmlite.ir")
    item, line = 4, ALIGNMENT // 4

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        (here, there, length), number = values, tools.intp_t
        vectors = ir.VectorType(ir.FloatType(), line).as_pointer()
        before = builder.and_(
            builder.neg(builder.ptrtoint(there, number)), number(ALIGNMENT - 1)
        )  # fmt: skip
        head = builder.sdiv(before, number(item))
        head = builder.select(builder.icmp_signed("<", length, head), length, head)
        tools.raw_memcpy(builder, there, here, head, item)
        lines = builder.sdiv(builder.sub(length, head), number(line))
        with tools.for_range(builder, lines) as loop:
            place = [builder.add(head, builder.mul(loop.index, number(line)))]
            value = builder.load(builder.bitcast(builder.gep(here, place), vectors), align=item)
            stream(builder, value, builder.bitcast(builder.gep(there, place), vectors))
        done = builder.add(head, builder.mul(lines, number(line)))
        rest = (builder.gep(there, [done]), builder.gep(here, [done]))
        tools.raw_memcpy(builder, *rest, builder.sub(length, done), item)
        return context.get_dummy_value()

    return types.void(source, target, types.intp), generate


def _write_clear(typing: Any, target: Any, count: Any) -> Any:
    """clear(target, count): so many elements from a pointer on become 0."""
    types = importlib.import_module("numba.core.types")
    tools = importlib.import_module("numba.core.cgutils")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        size = context.get_abi_sizeof(context.get_data_type(target.dtype))
        start = builder.bitcast(values[0], tools.voidptr_t)
        tools.memset(builder, start, builder.mul(values[1], tools.intp_t(size)), 0)
        return context.get_dummy_value()

    return types.void(target, types.intp), generate


def stream(builder: Any, value: Any, address: Any) -> None:
    """Write a vector to memory, not to the caches, while instructions are written. Memory need not
    be read first to complete a line, and what others need is not pushed out. The address is a
    multiple of the vector's size. A task that does so ends with `finish_streams`."""
    ir = importlib.import_module("llvmlite.ir")
    size = value.type.count * 4
    made = builder.store(value, address, align=size)
    made.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))


def _write_finish(typing: Any) -> Any:
    """finish_streams(): let others see what was streamed. On x86 nothing else keeps the order of
    such writes."""
    types = importlib.import_module("numba.core.types")
    ir = importlib.import_module("llvmlite.ir")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if platform.machine().lower() in ("x86_64", "amd64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse.sfence", (), kind), [])
        else:
            builder.fence("release")
        return context.get_dummy_value()

    return types.void(), generate


def _write_goes_past(typing: Any, target: Any) -> Any:
    """goes_past(array): is it better written past the caches? If it is large, and begins where a
    line of the cache does."""
    types = importlib.import_module("numba.core.types")
    tools = importlib.import_module("numba.core.cgutils")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        array = context.make_array(target)(context, builder, values[0])
        start = builder.ptrtoint(array.data, tools.intp_t)
        within = builder.and_(start, tools.intp_t(ALIGNMENT - 1))
        return builder.and_(
            builder.icmp_signed(">=", array.nitems, tools.intp_t(LARGE)),
            builder.icmp_signed("==", within, tools.intp_t(0)),
        )

    return types.boolean(target), generate


at = Intrinsic(_write_at)
goes_past, finish_streams = Intrinsic(_write_goes_past), Intrinsic(_write_finish)
pointer = Intrinsic(_write_pointer)
copy, stream_copy = Intrinsic(_write_copy), Intrinsic(_write_stream_copy)
clear = Intrinsic(_write_clear)
view = Intrinsic(_write_view, lambda value, kind: value.view(kind))
min = Intrinsic(_write_choice("<"), builtins.min)
max = Intrinsic(_write_choice(">"), builtins.max)
empty, zeros, free = (
    Intrinsic(_write_room(False)), Intrinsic(_write_room(True)), Intrinsic(_write_free),
)  # fmt: skip
