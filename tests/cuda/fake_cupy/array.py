"""Device arrays as NumPy arrays in disguise."""

from __future__ import annotations

import json
import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from . import cuda
from .races import checker, place_of

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


def work(what: str, function: Callable[[], Any], *inputs: Any, into: Any = None) -> Any:
    """Done now, or captured, see cuda.enqueue and cuda.computed; `into` is what it overwrites."""

    def quiet() -> Any:
        with np.errstate(all="ignore"):
            return function()

    reads = [a for a in _flat(inputs) if isinstance(a, np.ndarray)]
    if into is not None:
        cuda.enqueue(what, quiet, reads, [into])
        return None
    return wrapped(cuda.computed(what, quiet, *reads))


def _flat(values: Any) -> list[Any]:
    """Lists of arrays, as concatenate takes them, opened."""
    nested = [_flat(v) if isinstance(v, (list, tuple)) else [v] for v in values]
    return [value for part in nested for value in part]


class Pinned:
    """Host memory that copies leave or reach after the call that began them."""

    def __init__(self) -> None:
        self._roots: dict[int, Any] = {}

    def empty(self, shape: Any, dtype: Any = float) -> np.ndarray[Any, Any]:
        made = np.empty(shape, dtype)
        self._roots[id(made)] = weakref.ref(made)
        return made

    def holds(self, array: np.ndarray[Any, Any]) -> bool:
        root = cuda.root_of(array)
        return id(root) in self._roots and self._roots[id(root)]() is root


pinned = Pinned()


def _copy_late(values: np.ndarray[Any, Any], out: np.ndarray[Any, Any], stream: int) -> None:
    """`out` holds rubbish until the host has waited for the copy."""
    out.reshape(-1).view(np.uint8)[...] = 0xFF
    checker.copying(stream, lambda: np.copyto(out, values))


def _keep_still(values: np.ndarray[Any, Any], stream: int) -> None:
    """Pinned memory must not change before the host has waited for its copy."""
    before, place = values.copy(), place_of("the copy to the device")

    def check() -> None:
        if values.tobytes() != before.tobytes():
            checker.fail(f"pinned memory changed before its copy had left: {place}")

    checker.copying(stream, check)


class ndarray:
    """`host` is where it really is; only the stand-in itself looks there."""

    __slots__ = ("__weakref__", "host")
    __array_ufunc__ = None
    __array_priority__ = 100

    def __init__(self, host: np.ndarray[Any, Any]) -> None:
        self.host = host
        cuda.allocate(host)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Use `.get()`.")

    def get(
        self, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True
    ) -> Any:
        """A copy on a stream, by default the current one. Of memory that is not contiguous CuPy
        first makes a copy inside `with stream` (cupy/_core/core.pyx), with all that follows."""
        cuda.forbid("a copy to host memory")
        stream = stream or cuda.get_current_stream()
        if not self.host.flags.c_contiguous:
            if out is not None:
                raise RuntimeError("Only contiguous arrays can be copied to `out`")
            with stream:
                return ndarray(self.host.copy()).get(stream, order, None, blocking)
        checker.launched(stream.ptr, "ndarray.get", [self.host], ())
        arrived = np.empty(self.host.shape, self.dtype) if out is None else out
        _copy_late(self.host.copy(), arrived, stream.ptr)
        if blocking:
            cuda.wait("ndarray.get")
            checker.synchronize(stream.ptr)
        return arrived

    def set(self, values: Any, stream: Any = None) -> None:
        if not isinstance(values, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if values.dtype != self.dtype:
            raise TypeError(f"{values.dtype} array cannot be set to {self.dtype} array")
        if values.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new: {values.shape}")
        if not self.host.flags.c_contiguous:
            raise RuntimeError("Cannot set to non-contiguous array")
        cuda.forbid("a copy from host memory")
        stream = stream or cuda.get_current_stream()
        checker.launched(stream.ptr, "ndarray.set", (), [self.host])
        self.host[...] = values
        if pinned.holds(values):
            _keep_still(values, stream.ptr)

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
                cuda.read_back(f"ndarray.{name}", self.host)
            positional = [unwrapped(a) for a in args]
            keywords = {k: unwrapped(v) for k, v in kwargs.items()}
            return work(
                f"ndarray.{name}", lambda: value(*positional, **keywords), self.host, positional,
                into=self.host if name in IN_PLACE else None,
            )  # fmt: skip

        return call

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(p, ndarray) and p.dtype == bool for p in parts):
            cuda.read_back("indexing by a mask")
        at = unwrapped(index)
        return work("indexing", lambda: self.host[at], self.host, at)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and value.ndim:
            raise TypeError("a numpy.ndarray cannot be assigned into a cupy.ndarray")
        at, given = unwrapped(index), unwrapped(value)
        place = self.host[at]
        work(
            "assignment", lambda: self.host.__setitem__(at, given), given, at,
            into=place if np.may_share_memory(place, self.host) else self.host,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.host)

    def __float__(self) -> float:
        cuda.read_back("float()", self.host)
        return float(self.host)

    def __int__(self) -> int:
        cuda.read_back("int()", self.host)
        return int(self.host)

    def __index__(self) -> int:
        cuda.read_back("index", self.host)
        return self.host.__index__()

    def __bool__(self) -> bool:
        cuda.read_back("bool()", self.host)
        return bool(self.host)

    def __iter__(self) -> Any:
        return (wrapped(v) for v in self.host)

    def __repr__(self) -> str:
        return f"device {self.host!r}"


def _operator(name: str) -> Any:
    def operate(self: ndarray, *others: Any) -> Any:
        in_place = name.startswith("__i") and name != "__invert__"
        given = [unwrapped(o) for o in others]
        result = work(
            name, lambda: getattr(self.host, name)(*given), self.host, given,
            into=self.host if in_place else None,
        )  # fmt: skip
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
