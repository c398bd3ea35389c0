"""RawModule by emulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cuda.cuda_emulator import Function, Module

from . import cuda
from .array import ndarray


class RawModule:
    def __init__(self, *, code: str, options: tuple[str, ...] = ()) -> None:
        self._module = Module(code)

    def get_function(self, name: str) -> Launcher:
        return Launcher(self._module[name])


class Launcher:
    def __init__(self, function: Function) -> None:
        self._function = function

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], args: Any) -> None:
        values = tuple(a.host if isinstance(a, ndarray) else a for a in args)
        pairs = list(zip(self._function.signature, values, strict=False))
        arrays = [(code, value) for code, value in pairs if isinstance(value, np.ndarray)]
        cuda.enqueue(
            f"kernel {self._function.name}",
            lambda: self._function(grid, block, values),
            [value for code, value in arrays if code.startswith("c")],  # const, so only read
            [value for code, value in arrays if not code.startswith("c")],
        )
