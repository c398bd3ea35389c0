"""What kernels share: their tasks spread over threads, and plain memory to walk along.

numba's own prange does the first and array slices the second, but both take it much longer to
compile.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .compiled import Intrinsic


def _write_at(typing: Any, source: Any, offset: Any) -> Any:
    """at(array or pointer, offset): a pointer to an element, counted through the whole array."""
    types = importlib.import_module("numba.core.types")
    pointer = source if isinstance(source, types.CPointer) else types.CPointer(source.dtype)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        start = values[0]
        if not isinstance(source, types.CPointer):
            start = context.make_array(source)(context, builder, start).data
        return builder.gep(start, [values[1]])

    return pointer(source, types.intp), generate


at = Intrinsic(_write_at)


def _write_copy(typing: Any, source: Any, target: Any, count: Any) -> Any:
    """copy(source, target, count): so many elements from one pointer to another, which lie apart.
    A loop would ask again and again whether they do, which short runs are not worth."""
    types = importlib.import_module("numba.core.types")
    tools = importlib.import_module("numba.core.cgutils")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        size = context.get_abi_sizeof(context.get_data_type(source.dtype))
        tools.raw_memcpy(builder, values[1], values[0], values[2], size)
        return context.get_dummy_value()

    return types.void(source, target, types.intp), generate


copy = Intrinsic(_write_copy)


def _write_parallel(typing: Any, count: Any, function: Any, arguments: Any) -> Any:
    """in_parallel(count, f, arguments): f(task, *arguments) for every task below `count`, on the
    threads of `use_threads`, each with a run of neighbouring tasks."""
    types = importlib.import_module("numba.core.types")

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        task = _compiled_into(context, function.dispatcher, types.void(types.intp, *arguments))
        _Launch(context, builder, task, arguments).write(values[0], values[2])
        return context.get_dummy_value()

    return types.void(types.intp, function, arguments), generate


def _compiled_into(context: Any, dispatcher: Any, signature: Any) -> Any:
    """A function as a part of the library that is being made: a call would link one of its own,
    which had been optimised before."""
    compiler = importlib.import_module("numba.core.compiler")
    flags = compiler.Flags()
    dispatcher.targetdescr.options.parse_as_flags(flags, dispatcher.targetoptions)
    flags.no_compile = True
    return compiler.compile_internal(
        context.typing_context, context, context.active_code_library, dispatcher.py_func,
        signature.args, signature.return_type, flags, locals={},
    )  # fmt: skip


def _one_after_the_other(count: int, function: Callable[..., None], arguments: Any) -> None:
    for task in range(count):
        function(task, *arguments)


in_parallel = Intrinsic(_write_parallel, _one_after_the_other)


class _Launch:
    """Writes a function for numba's pool of threads, and its call.

    The pool is made for loops over arrays: it takes a number of shares, and steps of arguments from
    share to share. One argument that starts at 0 and has a step of 1 is the number of the share.
    """

    def __init__(self, context: Any, builder: Any, task: Any, arguments: Any) -> None:
        self.ir = importlib.import_module("llvmlite.ir")
        self.tools = importlib.import_module("numba.core.cgutils")
        self.context, self.builder, self.task = context, builder, task
        self.integer = self.tools.intp_t
        self.byte = self.ir.IntType(8).as_pointer()
        values = context.get_value_type(arguments)
        self.job = self.ir.LiteralStructType([self.integer, self.integer, values])

    def write(self, count: Any, arguments: Any) -> None:
        build, ir, number = self.builder, self.ir, self.integer
        threads = build.call(self._external("get_num_threads", number, []), [])
        job = self.tools.alloca_once(build, self.job)
        for i, value in enumerate((count, threads, arguments)):
            build.store(value, self.tools.gep_inbounds(build, job, 0, i))
        first, shares, step = (
            self._variable(ir.Constant(self.byte, None)),
            self._variable(threads),
            self._variable(number(1)),
        )
        body = self._share_function()
        with build.if_else(build.icmp_signed("<=", threads, number(1))) as (alone, together):
            with alone:
                build.call(body, [first, shares, step, build.bitcast(job, self.byte)])
            with together:
                pool = self._external(
                    "numba_parallel_for", ir.VoidType(), [self.byte] * 5 + [number] * 3
                )
                given = [build.bitcast(g, self.byte) for g in (body, first, shares, step, job)]
                build.call(pool, [*given, number(0), number(1), threads])

    def _external(self, name: str, result: Any, arguments: list[Any]) -> Any:
        kind = self.ir.FunctionType(result, arguments)
        return self.tools.get_or_insert_function(self.builder.module, kind, name)

    def _variable(self, value: Any) -> Any:
        return self.tools.alloca_once_value(self.builder, value)

    def _share_function(self) -> Any:
        """f(shares, their number, steps, job): the tasks of one share, or of some."""
        ir, tools = self.ir, self.tools
        integers = self.integer.as_pointer()
        kind = ir.FunctionType(
            ir.VoidType(), [self.byte.as_pointer(), integers, integers, self.byte]
        )
        module = self.builder.module
        name = module.get_unique_name(f"{self.task.fndesc.mangled_name}.share")
        body = ir.Function(module, kind, name)
        body.linkage = "internal"
        build = ir.IRBuilder(body.append_basic_block("entry"))
        job = build.bitcast(body.args[3], self.job.as_pointer())
        count, threads, arguments = (
            build.load(tools.gep_inbounds(build, job, 0, i)) for i in range(3)
        )
        first = build.ptrtoint(build.load(body.args[0]), self.integer)
        last = build.add(first, build.load(body.args[1]))
        start, stop = (build.sdiv(build.mul(count, n), threads) for n in (first, last))
        with tools.for_range_slice(build, start, stop, self.integer(1)) as (task, _):
            self.context.call_internal_no_propagate(
                build, self.task.fndesc, self.task.signature,
                [task, *tools.unpack_tuple(build, arguments)],
            )  # fmt: skip
        build.ret_void()
        return body
