"""Turn the sources of CuPy into those of a CuPy that runs on the CPU.

    python patch_cupy.py cupy-14.2.0        (may be repeated: the originals are kept beside)

CuPy has a build without CUDA, made for Read the Docs: its headers hold functions that do nothing.
They get bodies here, from stubs/*.h: those that have to do with streams ask the emulated driver,
cuBLAS, cuRAND and Thrust are plain loops. What is left without a body fails loudly.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
Edit = Callable[[str], str]

# How a function that does nothing looks in CuPy's headers.
NOTHING = (
    r"\n(?:cudaError_t|cublasStatus_t|curandStatus_t|const char\*|int) {name}\s*"
    r"\([^)]*\)\s*\{{.*?\n\}}\n"
)
LOUD = re.compile(
    r"(\n(?:cublasStatus_t|curandStatus_t|cusolverStatus_t|cusparseStatus_t) (\w+)"
    r"\s*\(\.\.\.\)\s*\{\s*return) (\w+_SUCCESS);"
)
HARMLESS = re.compile("Create|Destroy|Set|Get")
NOT_SUPPORTED = 15
THRUST = re.compile(
    r"\nvoid thrust_sort\(\.\.\.\) \{\n\}\n\nvoid thrust_lexsort\(\.\.\.\) \{\n\}\n\n"
    r"void thrust_argsort\(\.\.\.\) \{\n\}\n"
)
LIBRARY = """
    else:
        import os as _os
        libname = _os.environ['CUDAEMU_LIB']
"""
DEVICE = """\
    cdef dict properties = {
        'name': b'cudaemu CPU device', 'warpSize': 32, 'maxThreadsPerBlock': 1024,
        'multiProcessorCount': 4, 'major': 8, 'minor': 0, 'sharedMemPerBlock': 49152,
        'maxThreadsPerMultiProcessor': 2048, 'totalGlobalMem': 8 << 30,
        'maxThreadsDim': (1024, 1024, 64), 'maxGridSize': (2147483647, 65535, 65535),
        'regsPerBlock': 65536, 'l2CacheSize': 1 << 20, 'totalConstMem': 65536,
        'clockRate': 1000000, 'memoryClockRate': 1000000, 'memoryBusWidth': 64,
    }
    return properties
"""


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1], "cupy_backends").is_dir():
        print(__doc__)
        return 2
    for path, edit in EDITS.items():
        _edit(Path(sys.argv[1], path), edit)
    return 0


def _edit(path: Path, edit: Edit) -> None:
    original = path.with_name(path.name + ".orig")
    if not original.exists():
        shutil.copy2(path, original)
    new = edit(original.read_text())
    if new == original.read_text():
        sys.exit(f"{path}: there is nothing to change; is this CuPy 14.2?")
    if new != path.read_text():
        path.write_text(new)


def _with_bodies(name: str) -> Edit:
    """Functions from stubs/<name>.h: a head, then bodies, each after `//: its name`."""

    def edit(text: str) -> str:
        _, head, *parts = re.split(
            r"^//: (?:head$)?", (HERE / f"stubs/{name}.h").read_text(), flags=re.M
        )
        text = text.replace('extern "C" {\n', f'{head}extern "C" {{\n', 1)
        for part in parts:
            function, body = part.split("\n", 1)
            found = re.search(NOTHING.format(name=function.strip()), text, re.DOTALL)
            if found is None:
                print(f"  CuPy has no {function}")
                continue
            text = f"{text[: found.start()]}\n{body}\n{text[found.end() :]}"
        return _loud(text) if name != "runtime" else text

    return edit


def _loud(text: str) -> str:
    """Functions that still do nothing say so, unless nothing is right."""

    def refuse(match: re.Match[str]) -> str:
        if HARMLESS.search(match[2]):
            return match[0]
        return f"{match[1]} ({match[3].split('_')[0].lower()}Status_t){NOT_SUPPORTED};"

    return LOUD.sub(refuse, text)


def _replacing(*pairs: tuple[str, str]) -> Edit:
    def edit(text: str) -> str:
        for old, new in pairs:
            text = text.replace(old, new)
        return text

    return edit


def _sorting(text: str) -> str:
    return THRUST.sub(lambda _: (HERE / "stubs" / "thrust.h").read_text(), text)


SOFT_LINK = "        libname = __file__\n\n    return SoftLink"
EDITS: dict[str, Edit] = {
    "cupy_backends/stub/cupy_cuda_runtime.h": _with_bodies("runtime"),
    "cupy_backends/stub/cupy_cublas.h": _with_bodies("cublas"),
    "cupy_backends/stub/cupy_curand.h": _with_bodies("curand"),
    "cupy_backends/stub/cupy_cusolver.h": _loud,
    "cupy/cuda/cupy_thrust.h": _sorting,
    "cupy_backends/cuda/api/_driver_extern.pxi": _replacing(
        (SOFT_LINK, f"        libname = __file__{LIBRARY}\n    return SoftLink")
    ),
    "cupy_backends/cuda/api/_runtime_softlink.pxi": _replacing(
        (SOFT_LINK, f"        libname = __file__{LIBRARY}\n    return SoftLink")
    ),
    "cupy_backends/cuda/libs/_cnvrtc.pxi": _replacing(
        ("            )\n\n    return SoftLink", f"            ){LIBRARY}\n    return SoftLink")
    ),
    "cupy_backends/cuda/api/runtime.pyx": _replacing(
        ("        raise ValueError('Fetching memory unsupported.')", "        return 0"),
        (
            "    ELSE:  # for RTD\n        return None",
            "    ELSE:\n        return PointerAttributes(attrs.device, "
            "<intptr_t>attrs.devicePointer, <intptr_t>attrs.hostPointer, 2)",
        ),
        ("    cdef dict properties = {'name': b'UNAVAILABLE'}  # for RTD\n", DEVICE),
    ),
}

if __name__ == "__main__":
    sys.exit(main())
