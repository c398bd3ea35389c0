"""Launching emulated kernels. Every argument is checked against the kernel's C signature, which
a real launch cannot do: there, a Python float for a `float` parameter is silent garbage."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from .compiler import Compiler, EmulationError

MAX_THREADS = 1024
_lock = threading.Lock()  # the emulator's state is global


class Module:
    """The kernels of one source. `order` is that of threads and blocks, for all launches."""

    order = 0
    compiler = Compiler()

    def __init__(self, source: str) -> None:
        self.built = self.compiler.build(source)
        self.library = ctypes.CDLL(str(self.built.path))

    def __getitem__(self, name: str) -> Function:
        if name not in self.built.kernels:
            raise EmulationError(f"no kernel {name!r}; there are {sorted(self.built.kernels)}")
        return Function(self, name)


class Function:
    def __init__(self, module: Module, name: str) -> None:
        self.module, self.name = module, name
        self._launch = getattr(module.library, f"launch_{name}")
        self._launch.restype = ctypes.c_char_p
        describe = getattr(module.library, f"signature_{name}")
        describe.restype = ctypes.c_char_p
        self.signature: list[str] = describe().decode().split()

    def __call__(self, grid: tuple[int, ...], block: tuple[int, ...], arguments: Any) -> None:
        if len(grid) != 1 or len(block) != 1:
            raise EmulationError(f"{self.name}: only one-dimensional launches are emulated")
        if not 1 <= grid[0] < 2**31 or not 1 <= block[0] <= MAX_THREADS:
            raise EmulationError(f"{self.name}: invalid launch of {grid} blocks of {block}")
        if len(arguments) != len(self.signature):
            raise EmulationError(
                f"{self.name}: {len(arguments)} arguments for {' '.join(self.signature)}"
            )
        cells = [
            self._cell(i, value, code)
            for i, (value, code) in enumerate(zip(arguments, self.signature, strict=True))
        ]
        pointers = (ctypes.c_void_p * len(cells))(*(ctypes.addressof(c) for c in cells))
        barriers = int(self.module.built.has_barriers)
        with _lock:
            problem = self._launch(pointers, grid[0], block[0], barriers, self.module.order)
        if problem:
            raise EmulationError(f"{self.name}: {problem.decode()}")

    def _cell(self, index: int, value: Any, code: str) -> Any:
        """The bytes that the launch passes for one argument."""
        if isinstance(value, np.ndarray):
            if "P" not in code:
                self._refuse(index, code, "array passed for a value")
            # 16-bit floats are structs in our kernels, whose C signature shows bits only.
            if value.dtype.str[1:].replace("f2", "u2") != code.split("P")[1]:
                self._refuse(index, code, f"{value.dtype} array passed")
            if not value.flags.c_contiguous:
                self._refuse(index, code, "array is not C-contiguous")
            return ctypes.c_void_p(value.ctypes.data)
        if "P" in code:
            if not (isinstance(value, np.uint64) and value == 0):
                self._refuse(index, code, f"{type(value).__name__} passed for a pointer")
            return ctypes.c_void_p(0)
        if not isinstance(value, np.generic) or value.dtype.str[1:] != code:
            self._refuse(index, code, f"{type(value).__name__} passed")
        return (ctypes.c_char * value.nbytes).from_buffer_copy(value.tobytes())

    def _refuse(self, index: int, code: str, why: str) -> None:
        raise EmulationError(f"{self.name}, argument {index} ({code}): {why}")
