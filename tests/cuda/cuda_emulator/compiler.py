"""CUDA C source to a shared object, cached by content in the temporary folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(r"__global__\s+void\s+(\w+)\s*\(")


class EmulationError(RuntimeError):
    """What a device would have refused, or answered with garbage."""


def compiler_missing() -> str | None:
    """Why kernels cannot be emulated here, or None."""
    return None if shutil.which("g++") else "kernels are emulated through g++, which is missing"


@dataclass(frozen=True)
class Built:
    path: Path
    kernels: tuple[str, ...]
    has_barriers: bool


@dataclass(frozen=True)
class Compiler:
    """`flags` make variants: the plain one, and one with AddressSanitizer."""

    flags: tuple[str, ...] = ("-O2", "-w")

    def build(self, source: str) -> Built:
        plain = _COMMENT.sub("", source)
        kernels = tuple(dict.fromkeys(_KERNEL.findall(plain)))
        exports = "".join(f"CUDAEMU_EXPORT({name})\n" for name in kernels)
        code = f'#include "cudaemu.h"\n#line 1 "kernel.cu"\n{source}\n{exports}'
        header = (HERE / "cudaemu.h").read_text()
        key = hashlib.sha256("\0".join((code, header, *self.flags)).encode()).hexdigest()[:32]
        folder = Path(tempfile.gettempdir()) / f"cudaemu-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        library = folder / f"{key}.so"
        if not library.exists():
            self._compile(code, library)
        return Built(library, kernels, "__syncthreads" in plain)

    def _compile(self, code: str, library: Path) -> None:
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            file, made = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
            file.write_text(code)
            command = ["g++", "-std=c++17", *self.flags, "-shared", "-fPIC", f"-I{HERE}"]
            done = subprocess.run(
                [*command, str(file), "-o", str(made)], capture_output=True, text=True
            )
            if done.returncode:
                raise EmulationError(f"the kernel does not compile:\n{done.stderr[:4000]}")
            made.replace(library)
