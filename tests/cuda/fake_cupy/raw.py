"""RawModule by emulation."""

from __future__ import annotations

from typing import Any

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
        cuda.check_queue(self._function.name)
        values = tuple(a.host if isinstance(a, ndarray) else a for a in args)
        cuda.enqueue(lambda: self._function(grid, block, values))
