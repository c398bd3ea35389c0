"""CUDA C++ to a shared object, by g++ and cudaemu.h: what the emulated NVRTC runs.

    python compile_kernel.py kernel.cu manifest [options ...] [--name-expr EXPRESSION ...]

The manifest is what the emulated driver takes for a module: the library's path, whether its kernels
have barriers, and the names of its kernels. It imports little, because it is started very often.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = os.environ.get("CUDAEMU_FLAGS", "-O2 -w").split()
COMPILATION_FAILED = 6  # NVRTC's number

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BOUNDS = r"(?:__launch_bounds__\s*\([^)]*\)\s*)?"
_KERNEL = re.compile(rf"__global__\s+(?:static\s+)?{_BOUNDS}void\s+{_BOUNDS}(\w+)\s*\(")
_TEMPLATE = re.compile(
    rf"template\s*<[^;{{]*>\s*(?:static\s+|inline\s+)*__global__\s+void\s+{_BOUNDS}(\w+)"
)
_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\(\d+\)\s*)?([\w:<> ]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
_BARRIER = re.compile(r"__sync(?:threads|warp)\w*|__shfl_\w*|__ballot_sync|__any_sync|__all_sync")


def translate(source: str, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """C++ source with exports, and the export of every kernel."""
    plain = _COMMENT.sub("", source)
    templates = set(_TEMPLATE.findall(plain))
    kernels = [k for k in dict.fromkeys(_KERNEL.findall(plain)) if k not in templates]
    exports = {kernel: kernel for kernel in kernels}
    exports |= {name: f"ne{i}" for i, name in enumerate(names)}
    lines = [f"CUDAEMU_EXPORT({kernel},&{kernel})" for kernel in kernels]
    lines += [f"CUDAEMU_EXPORT(ne{i},(&{name}))" for i, name in enumerate(names)]
    body = _SHARED.sub(r"\1* \2 = (\1*)cudaemu::dynshared;", source)
    head = '#include "cudaemu.h"\n#line 1 "kernel.cu"\n'
    return f'{head}{body}\n#line 1 "exports"\n' + "\n".join(lines) + "\n", exports


def kept(options: Sequence[str]) -> list[str]:
    """Options that g++ takes, too; NVIDIA's headers are not for it."""
    given = [o[1:] if o.startswith("--std") else o for o in options]
    given = [o for o in given if o.startswith(("-D", "-I", "-U", "-std"))]
    theirs = ("_cccl", "/cuda", "/nvidia/")
    given = [o for o in given if not (o.startswith("-I") and any(t in o for t in theirs))]
    if not any(o.startswith("-std") for o in given):
        given.append("-std=c++17")
    return [f"-I{HERE}/shadow", *given]


def build(source: str, options: Sequence[str], names: Sequence[str]) -> str:
    """Compile unless that was done before; returns the manifest."""
    code, exports = translate(source, names)
    flags = kept(options)
    with open(os.path.join(HERE, "cudaemu.h")) as header:
        key = hashlib.sha256(repr((code, header.read(), FLAGS, flags)).encode()).hexdigest()[:32]
    default = os.path.join(tempfile.gettempdir(), f"real-cupy-{os.getuid()}")
    folder = os.environ.get("CUDAEMU_CACHE", default)
    library = os.path.join(folder, f"{key}.so")
    if not os.path.exists(library):
        os.makedirs(folder, exist_ok=True)
        _compile(code, flags, library)
    barriers = int(bool(_BARRIER.search(_COMMENT.sub("", source))))
    table = "".join(f"{export}\t{name}\n" for name, export in exports.items())
    return f"CUDAEMU1\n{library}\n{barriers}\n{table}END\n"


def _compile(code: str, flags: Sequence[str], library: str) -> None:
    with tempfile.TemporaryDirectory(dir=os.path.dirname(library)) as folder:
        file, made = os.path.join(folder, "kernel.cpp"), os.path.join(folder, "kernel.so")
        with open(file, "w") as out:
            out.write(code)
        command = ["g++", *FLAGS, "-shared", "-fPIC", "-fvisibility=hidden", f"-I{HERE}", *flags]
        done = subprocess.run([*command, file, "-o", made], capture_output=True, text=True)
        if done.returncode:
            sys.stderr.write(f"the kernel does not compile:\n{done.stderr[:4000]}")
            sys.exit(COMPILATION_FAILED)
        os.replace(made, library)


def main() -> None:
    source, manifest, *rest = sys.argv[1:]
    names, options, arguments = [], [], iter(rest)
    for argument in arguments:
        if argument == "--name-expr":
            names.append(next(arguments))
        else:
            options.append(argument)
    with open(source) as file:
        text = build(file.read(), options, names)
    with open(manifest, "w") as out:
        out.write(text)


if __name__ == "__main__":
    main()
