"""Device arrays as NumPy arrays in disguise."""

from __future__ import annotations

import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import cuda

_ATTRIBUTES = frozenset(
    json.loads((Path(__file__).parent.parent / "cupy_api.json").read_text())["ndarray"]
)
_PLAIN = {"shape", "dtype", "size", "ndim", "nbytes", "itemsize", "strides", "flags"}


def unwrapped(value: Any) -> Any:
    """The NumPy side of an argument; a NumPy array is refused, as CuPy does."""
    if isinstance(value, ndarray):
        return value.host
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (list, tuple)):
        return type(value)(unwrapped(v) for v in value)
    return value


def wrapped(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ndarray(value)
    if isinstance(value, np.generic):
        return ndarray(np.asarray(value))  # CuPy returns 0-d arrays, not scalars
    if isinstance(value, (list, tuple)):
        return type(value)(wrapped(v) for v in value)
    return value


IN_PLACE = {"fill", "sort", "put", "partition"}


def work(function: Callable[[], Any], in_place: bool, *inputs: Any) -> Any:
    """Done now, or captured; see cuda.enqueue and cuda.computed."""

    def quiet() -> Any:
        with np.errstate(all="ignore"):
            return function()

    if in_place:
        cuda.enqueue(quiet)
        return None
    return wrapped(cuda.computed(quiet, *inputs))


class ndarray:
    """`host` is where it really is; only the stand-in itself looks there."""

    __slots__ = ("__weakref__", "host")
    __array_ufunc__ = None
    __array_priority__ = 100

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self.host = host

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use `.get()`.")

    def get(
        self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> Any:
        if blocking:
            cuda.wait("ndarray.get")
        if out is None:
            return self.host.copy()
        out[...] = self.host
        return out

    def set(self, values: Any, stream: Any = None) -> None:
        if not isinstance(values, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if values.shape != self.shape or values.dtype != self.dtype:
            raise ValueError(f"cannot set {values.shape} {values.dtype} to {self.shape}")
        cuda.forbid("a copy from host memory")
        self.host[...] = values

    @property
    def data(self) -> Any:
        return types.SimpleNamespace(ptr=self.host.ctypes.data)

    def __getattr__(self, name: str) -> Any:
        if name not in _ATTRIBUTES:
            raise AttributeError(f"cupy.ndarray has no attribute {name!r}")
        value = getattr(self.host, name)
        if name in _PLAIN:
            return value
        if not callable(value):
            return wrapped(value)

        def call(*args: Any, **kwargs: Any) -> Any:
            if name in ("item", "tolist", "nonzero"):
                cuda.wait(f"ndarray.{name}")
            positional = [unwrapped(a) for a in args]
            keywords = {k: unwrapped(v) for k, v in kwargs.items()}
            return work(
                lambda: value(*positional, **keywords), name in IN_PLACE, self.host, *positional
            )

        return call

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(p, ndarray) and p.dtype == bool for p in parts):
            cuda.wait("indexing by a mask")
        at = unwrapped(index)
        return work(lambda: self.host[at], False, self.host)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("a numpy.ndarray cannot be assigned into a cupy.ndarray")
        at, given = unwrapped(index), unwrapped(value)
        work(lambda: self.host.__setitem__(at, given), True)

    def __len__(self) -> int:
        return len(self.host)

    def __float__(self) -> float:
        cuda.wait("float()")
        return float(self.host)

    def __int__(self) -> int:
        cuda.wait("int()")
        return int(self.host)

    def __index__(self) -> int:
        cuda.wait("index")
        return self.host.__index__()

    def __bool__(self) -> bool:
        cuda.wait("bool()")
        return bool(self.host)

    def __iter__(self) -> Any:
        return (wrapped(v) for v in self.host)

    def __repr__(self) -> str:
        return f"device {self.host!r}"


def _operator(name: str) -> Any:
    def operate(self: ndarray, *others: Any) -> Any:
        in_place = name.startswith("__i") and name != "__invert__"
        given = [unwrapped(o) for o in others]
        result = work(lambda: getattr(self.host, name)(*given), in_place)
        return self if in_place else result

    return operate


_BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("and", "or", "xor", "lshift", "rshift"),
)
for _name in _BINARY:
    for _prefix in ("", "r", "i"):
        setattr(ndarray, f"__{_prefix}{_name}__", _operator(f"__{_prefix}{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert"):
    setattr(ndarray, f"__{_name}__", _operator(f"__{_name}__"))
