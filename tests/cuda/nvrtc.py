"""NVRTC, NVIDIA's runtime compiler, through ctypes: compiles CUDA C for devices that are not there.

The wheel nvidia-cuda-nvrtc (part of the `test` extra) is enough; no driver, no CuPy.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
from functools import cache
from pathlib import Path


class CompileError(Exception):
    """The compiler's log."""


@cache
def find() -> Path | None:
    """The library of an installed wheel, of CUDA 13 or 12."""
    spec = importlib.util.find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [
        path
        for folder in folders
        for pattern in ("cu13/lib/libnvrtc.so.*", "cuda_nvrtc/lib/libnvrtc.so.*")
        for path in sorted(Path(folder).glob(pattern))
    ]
    return found[0] if found else None


class Compiler:
    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self.log = ""

    def _call(self, name: str, *arguments: object) -> int:
        return int(getattr(self._library, f"nvrtc{name}")(*arguments))

    def architectures(self) -> list[int]:
        count = ctypes.c_int()
        self._call("GetNumSupportedArchs", ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._call("GetSupportedArchs", found)
        return list(found)

    def resources(
        self, source: str, architecture: int, options: tuple[str, ...]
    ) -> dict[str, tuple[int, int]]:
        """Of every kernel: the registers of a thread, and bytes spilled to memory."""
        self.compile(source, architecture, (*options, "--ptxas-options=-v"))
        found = re.findall(
            r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers",
            self.log, re.DOTALL,
        )  # fmt: skip
        return {name: (int(registers), int(spilled)) for name, spilled, registers in found}

    def ptx(self, source: str, architecture: int, options: tuple[str, ...]) -> str:
        """The code before it is made for one device: its instructions can be read."""
        target = f"compute_{architecture}"
        return self._compile(source, (*options, f"-arch={target}"), "PTX").decode()

    def compile(self, source: str, architecture: int, options: tuple[str, ...]) -> bytes:
        """The machine code for sm_<architecture>; `log` has what the compiler said."""
        return self._compile(source, (*options, f"-arch=sm_{architecture}"), "CUBIN")

    def _compile(self, source: str, flags: tuple[str, ...], what: str) -> bytes:
        program = ctypes.c_void_p()
        self._call(
            "CreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
        )
        try:
            array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
            if self._call("CompileProgram", program, len(flags), array):
                raise CompileError(self._text(program, "ProgramLog").decode())
            self.log = self._text(program, "ProgramLog").decode()
            return self._text(program, what)
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, buffer)
        return buffer.raw
