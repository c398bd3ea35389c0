"""Kernels of another processor, run by an emulator: AArch64 under qemu-user."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pycaffe_fire.backend.cpu import library
from pycaffe_fire.backend.cpu.native import build

HERE = Path(__file__).parent
TARGET = build.Target("aarch64", "linux", ("-target", "aarch64-linux-gnu"))
EMULATOR = "qemu-aarch64"
SYSTEM = Path("/usr/aarch64-linux-gnu")  # Debian's libc6-arm64-cross


def missing() -> str:
    """What an emulated run lacks here; "" if nothing."""
    if sys.platform != "linux" or not shutil.which(EMULATOR):
        return f"{EMULATOR} (Debian: qemu-user)"
    if not (SYSTEM / "lib").exists():
        return "the C library for AArch64 (Debian: libc6-arm64-cross)"
    if importlib.util.find_spec("ziglang") is None:
        return "a C compiler for AArch64 (pip install ziglang)"
    return ""


@cache
def emulated() -> library.Library:
    """Compile the kernels for AArch64 and start an emulator that runs them."""
    folder = HERE.parents[2] / "build" / "neon"
    build.build(folder, TARGET, build.ZIG, objects=folder / "objects")
    driver = folder / "driver"
    subprocess.run(
        [*build.ZIG, *TARGET.flags, "-O1", str(HERE / "driver.c"), "-o", str(driver), "-ldl"],
        check=True,
    )
    return RemoteLibrary([EMULATOR, "-L", str(SYSTEM), str(driver)], folder / "libfire_neon.so")


class RemoteLibrary(library.Library):
    """A library whose kernels run in another process, on copies of their arrays."""

    def __init__(self, command: list[str], path: Path) -> None:
        self.isa, self.path = "neon", path
        self._process = subprocess.Popen(
            [*command, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def bind(self, kernel: library.Kernel) -> Callable[[Any], None]:
        return lambda _: self._call(kernel)

    def _call(self, kernel: library.Kernel) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        name, image = kernel.name.encode(), bytes(kernel._struct)
        request = [_number(len(name)), name, _number(len(image)), image]
        arrays, pointers = [], 0
        for field in kernel.fields:
            if not isinstance(getattr(type(kernel), field), library._ArrayField):
                continue
            held = kernel._arrays.get(field)
            own = held if isinstance(held, list) else [] if held is None else [held]
            pointers += 1
            offset = getattr(type(kernel).Struct, field).offset
            request_of = [_number(offset), _number(len(own)), _number(isinstance(held, list))]
            for array in own:
                request_of += [_number(array.nbytes), array.tobytes()]
            request += request_of
            arrays += own
        request.insert(4, _number(pointers))
        stdin.write(b"".join(request))
        stdin.flush()
        (status,) = struct.unpack("<q", stdout.read(8))
        assert status == 0, f"kernel {kernel.name} is missing, or its struct has another size"
        sent = [array.tobytes() for array in arrays]
        for array, before in zip(arrays, sent, strict=True):
            after = stdout.read(array.nbytes)
            if after != before:  # of two views of the same memory one may be written
                array.reshape(-1)[...] = np.frombuffer(after, array.dtype)


def _number(value: int) -> bytes:
    return struct.pack("<q", value)
