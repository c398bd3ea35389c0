"""Tasks of kernels, spread over threads.

numba's own prange does it, too, but takes it much longer to compile.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .compiled import Intrinsic, compiled_into

FORTH, BACK, TURNS = "forth", "back", "turns"


def _write_parallel(order: str) -> Any:
    """f(count, g, arguments): g(task, *arguments) for every task below `count`, on the threads of
    `use_threads`, each with a run of neighbouring tasks, which is the same every time; or BACK,
    from the last task of each run to the first. Or threads take the next task in TURNS, so that
    cores that others use, too, do fewer."""

    def launch(typing: Any, count: Any, function: Any, arguments: Any) -> Any:
        types = importlib.import_module("numba.core.types")

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            task = compiled_into(
                context, function.typing_key._defn.dispatcher, (types.intp, *arguments)
            )
            _Launch(context, builder, task, arguments, order).write(values[0], values[2])
            return context.get_dummy_value()

        return types.void(types.intp, function, arguments), generate

    return launch


def _one_after_the_other(order: str) -> Any:
    def run(count: int, function: Callable[..., None], arguments: Any) -> None:
        for task in reversed(range(count)) if order == BACK else range(count):
            function(task, *arguments)

    return run


in_parallel, in_parallel_back, in_turns = (
    Intrinsic(_write_parallel(order), _one_after_the_other(order)) for order in (FORTH, BACK, TURNS)
)


class _Launch:
    """Writes a function for numba's pool of threads, and its call.

    The pool is made for loops over arrays: it takes a number of shares, and steps of arguments from
    share to share. One argument that starts at 0 and has a step of 1 is the number of the share.
    """

    def __init__(self, context: Any, builder: Any, task: Any, arguments: Any, order: str) -> None:
        self.ir = importlib.import_module("llvmlite.ir")
        self.tools = importlib.import_module("numba.core.cgutils")
        self.context, self.builder, self.task, self.order = context, builder, task, order
        self.integer = self.tools.intp_t
        self.byte = self.ir.IntType(8).as_pointer()
        values = context.get_value_type(arguments)
        self.job = self.ir.LiteralStructType([self.integer, self.integer, values, self.integer])

    def write(self, count: Any, arguments: Any) -> None:
        build, ir, number = self.builder, self.ir, self.integer
        threads = build.call(self._external("get_num_threads", number, []), [])
        job = self.tools.alloca_once(build, self.job)
        for i, value in enumerate((count, threads, arguments, number(0))):
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
        places = [tools.gep_inbounds(build, job, 0, i) for i in range(4)]
        write = self._write_turns if self.order == TURNS else self._write_run
        write(build, body.args, places)
        build.ret_void()
        return body

    def _write_run(self, build: Any, share: Any, job: list[Any]) -> None:
        count, threads, arguments = (build.load(place) for place in job[:3])
        first = build.ptrtoint(build.load(share[0]), self.integer)
        last = build.add(first, build.load(share[1]))
        start, stop = (build.sdiv(build.mul(count, n), threads) for n in (first, last))
        with self.tools.for_range_slice(build, start, stop, self.integer(1)) as (task, _):
            if self.order == BACK:
                task = build.sub(build.add(start, stop), build.add(task, self.integer(1)))
            self._write_task(build, task, arguments)

    def _write_turns(self, build: Any, share: Any, job: list[Any]) -> None:
        count, arguments = build.load(job[0]), build.load(job[2])
        loop, work, done = (build.append_basic_block(name) for name in ("next", "work", "done"))
        build.branch(loop)
        build.position_at_end(loop)
        task = build.atomic_rmw("add", job[3], self.integer(1), "monotonic")
        build.cbranch(build.icmp_signed("<", task, count), work, done)
        build.position_at_end(work)
        self._write_task(build, task, arguments)
        build.branch(loop)
        build.position_at_end(done)

    def _write_task(self, build: Any, task: Any, arguments: Any) -> None:
        self.context.call_internal_no_propagate(
            build, self.task.fndesc, self.task.signature,
            [task, *self.tools.unpack_tuple(build, arguments)],
        )  # fmt: skip
