"""A stand-in for `cupy` on host memory: enough of it to run the CUDA backend without a device.

Arrays are opaque, as on a device: no implicit conversion to or from NumPy, memory starts out as
NaNs. A name that CuPy lacks is missing here too (../cupy_api.json, made from the real package).
RawModule executes the same CUDA source through the emulator, cuBLAS is NumPy, and everything that
would wait for a device is counted in `cuda.waits`. races.py looks for accesses in no order.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import blas, cuda
from .array import ndarray, pinned, unwrapped, work
from .raw import RawModule

API: dict[str, Any] = json.loads((Path(__file__).parent.parent / "cupy_api.json").read_text())
__version__ = API["version"]
__all__ = ["RawModule", "blas", "cuda", "ndarray"]
cuda.cublas = blas


def asarray(a: Any, dtype: Any = None) -> ndarray:
    """A new device array, unless it is one of this type already."""
    if isinstance(a, ndarray):
        return a if dtype in (None, a.dtype) else a.astype(dtype)
    cuda.forbid("a copy from host memory")
    made = ndarray(np.array(a, dtype=dtype, order="C"))
    cuda.enqueue("cupy.asarray", lambda: None, (), [made.host])
    return made


array = asarray


def ascontiguousarray(a: Any, dtype: Any = None) -> ndarray:
    if not isinstance(a, ndarray):
        cuda.forbid("a copy from host memory")
    host = a.host if isinstance(a, ndarray) else a
    return work("ascontiguousarray", lambda: np.ascontiguousarray(host, dtype), host)


def empty(shape: Any, dtype: Any = float, order: Literal["C", "F"] = "C") -> ndarray:
    """Poisoned: a kernel that forgets to write an element is found out."""
    made = np.empty(shape, dtype, order)
    made.reshape(-1).view(np.uint8)[...] = 0xFF
    return ndarray(made)


def empty_like(a: ndarray, dtype: Any = None) -> ndarray:
    return empty(a.shape, dtype or a.dtype)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name not in API["top"]:
        raise AttributeError(f"module 'cupy' has no attribute {name!r}")
    value = getattr(np, name)
    if callable(value) and not isinstance(value, type):
        return _on_device(name, value)
    return value


IN_PLACE = {"put_along_axis", "copyto", "place", "putmask", "fill_diagonal"}


def _on_device(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    waits = name in {"nonzero", "unique", "bincount", "flatnonzero", "argwhere"}

    def call(*args: Any, **kwargs: Any) -> Any:
        positional = [unwrapped(a) for a in args]
        keywords = {k: unwrapped(v) for k, v in kwargs.items()}
        if waits:  # the size of the result is known only after looking at the values
            cuda.read_back(f"cupy.{name}", *positional[:1])
        into = positional[0] if name in IN_PLACE else keywords.get("out")
        made = work(
            f"cupy.{name}", lambda: function(*positional, **keywords), positional,
            list(keywords.values()), into=into,
        )  # fmt: skip
        return kwargs.get("out", made)

    return call


def install(modules: dict[str, Any]) -> types.ModuleType:
    """Put the stand-in where `import cupy` and `import cupyx` will find it."""
    cupyx = types.ModuleType("cupyx")
    cupyx.empty_pinned = pinned.empty  # type: ignore[attr-defined]
    itself = sys.modules[__name__]
    modules["cupy"], modules["cupyx"] = itself, cupyx
    modules["cupy.cuda"] = cuda  # or an import of it would load the file a second time
    return itself
