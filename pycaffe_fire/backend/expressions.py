"""Loops over elements whose arithmetic writes its own instructions, for kernels to call.

A body is a function of numbers that Python runs once, on stand-ins that append an instruction for
every operator; numba would infer types for each of them first, which takes it much longer. Bodies
neither branch nor loop over what they are given. Numbers of two kinds do not meet without `astype`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .compiled import Intrinsic
from .instructions import pointer_to

Body = Callable[..., Sequence[Any]]


class Number:
    """What an instruction gives, of a NumPy type; plain numbers become constants of that type."""

    __array_ufunc__ = None  # NumPy's numbers leave operators to us

    def __init__(self, builder: Any, value: Any, kind: Any) -> None:
        self.builder, self.value, self.kind = builder, value, np.dtype(kind)

    def _written(self, names: str, *others: Any, kind: Any = None) -> Number:
        """An instruction on this number and others; `names` are those for floats / integers."""
        floating, _, whole = names.partition("/")
        name = floating if self.kind.kind == "f" else whole
        values = [self._same(other) for other in others]
        return self._made(getattr(self.builder, name)(self.value, *values), kind or self.kind)

    def _same(self, other: Any) -> Any:
        if not isinstance(other, Number):
            plain = float(other) if self.kind.kind == "f" else int(other)
            return self.value.type(plain)
        if other.kind != self.kind:
            raise TypeError(f"{self.kind} meets {other.kind}")
        return other.value

    def _made(self, value: Any, kind: Any) -> Number:
        return Number(self.builder, value, kind)

    def _constant(self, plain: Any) -> Number:
        return self._made(self._same(plain), self.kind)

    def __add__(self, other: Any) -> Number:
        return self._written("fadd/add", other)

    def __radd__(self, other: Any) -> Number:
        return self._constant(other) + self

    def __sub__(self, other: Any) -> Number:
        return self._written("fsub/sub", other)

    def __rsub__(self, other: Any) -> Number:
        return self._constant(other) - self

    def __mul__(self, other: Any) -> Number:
        return self._written("fmul/mul", other)

    def __rmul__(self, other: Any) -> Number:
        return self._constant(other) * self

    def __truediv__(self, other: Any) -> Number:
        return self._written("fdiv", other)

    def __neg__(self) -> Number:
        return self._written("fneg/neg")

    def __and__(self, other: Any) -> Number:
        return self._written("/and_", other)

    def __or__(self, other: Any) -> Number:
        return self._written("/or_", other)

    def __xor__(self, other: Any) -> Number:
        return self._written("/xor", other)

    def __lshift__(self, other: Any) -> Number:
        return self._written("/shl", other)

    def __rshift__(self, other: Any) -> Number:
        return self._written("/lshr" if self.kind.kind == "u" else "/ashr", other)

    def astype(self, kind: Any) -> Number:
        """The same number of another type, as C converts it."""
        old, new = self.kind, np.dtype(kind)
        target = _machine_type(new)
        if old.kind == new.kind == "f":
            name = "fpext" if new.itemsize > old.itemsize else "fptrunc"
        elif new.kind == "f":
            name = "uitofp" if old.kind == "u" else "sitofp"
        elif old.kind == "f":
            name = "fptoui" if new.kind == "u" else "fptosi"
        elif new.itemsize < old.itemsize:
            name = "trunc"
        else:
            name = "zext" if old.kind == "u" else "sext"
        return self._made(getattr(self.builder, name)(self.value, target), new)

    def view(self, kind: Any) -> Number:
        """The same bits as a number of another type."""
        return self._made(self.builder.bitcast(self.value, _machine_type(np.dtype(kind))), kind)


def sqrt(number: Number) -> Number:
    return _called("llvm.sqrt", number)


def floor(number: Number) -> Number:
    return _called("llvm.floor", number)


def _called(name: str, number: Number) -> Number:
    function = number.builder.module.declare_intrinsic(name, [number.value.type])
    return Number(number.builder, number.builder.call(function, [number.value]), number.kind)


def where_any_bit(flags: Number, yes: Number, no: Number) -> Number:
    """One of two numbers: the first unless `flags` is 0."""
    build = flags.builder
    chosen = build.icmp_unsigned("!=", flags.value, flags.value.type(0))
    return Number(build, build.select(chosen, yes.value, no.value), yes.kind)


def _machine_type(kind: np.dtype[Any]) -> Any:
    ir = importlib.import_module("llvmlite.ir")
    if kind.kind == "f":
        return ir.FloatType() if kind.itemsize == 4 else ir.DoubleType()
    return ir.IntType(8 * kind.itemsize)


def for_each(body: Body, step: int = 1) -> Callable[..., None]:
    """f(count, sources, targets, numbers): targets[k][i * step] = body(i, *read, *numbers)[k] for
    every i below `count`, where read[k] = sources[k][i * step].

    Sources and targets are arrays or pointers; `numbers` are the same for every i.
    """

    def on_elements(typing: Any, count: Any, sources: Any, targets: Any, numbers: Any) -> Any:
        types = importlib.import_module("numba.core.types")

        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            _write(context, builder, signature, values, body, step)
            return context.get_dummy_value()

        return types.void(types.intp, sources, targets, numbers), generate

    return Intrinsic(on_elements)


def _write(context: Any, builder: Any, signature: Any, values: Any, body: Body, step: int) -> None:
    tools = importlib.import_module("numba.core.cgutils")
    support = importlib.import_module("numba.np.numpy_support")
    sources, targets, numbers = (
        list(zip(signature.args[k], tools.unpack_tuple(builder, values[k]), strict=True))
        for k in (1, 2, 3)
    )

    def places(given: Any) -> list[Any]:
        return [pointer_to(context, builder, kind, value) for kind, value in given]

    fixed = [Number(builder, value, support.as_dtype(kind)) for kind, value in numbers]
    reads, writes = places(sources), places(targets)
    with tools.for_range(builder, values[0]) as loop:
        place = builder.mul(loop.index, tools.intp_t(step))
        read = [
            Number(builder, builder.load(builder.gep(pointer, [place])), support.as_dtype(k.dtype))
            for pointer, (k, _) in zip(reads, sources, strict=True)
        ]
        made = body(Number(builder, loop.index, np.int64), *read, *fixed)
        for number, pointer in zip(made, writes, strict=True):
            builder.store(number.value, builder.gep(pointer, [place]))
