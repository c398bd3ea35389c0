"""Compile the CPU kernels: one shared library per instruction set, beside the sources.

Imports nothing of the package, so that setup.py can load it by its path. On the command line:

    python pycaffe_fire/backend/cpu/native/build.py    compile what has changed
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
RECORD = "built.sha256"  # beside the libraries: the fingerprint of what they were compiled from
OBJECTS = "objects"  # folder beside the sources: object files, so that only changes are compiled

FLAGS = (
    "-std=gnu11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wno-psabi",
    # Nothing here makes assumptions about NaN, infinity or the order of sums.
    "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
)  # fmt: skip
# Without the flag, zig compiles every variant for the processor that it runs on.
ZIG_FLAGS = ("-mcpu=baseline",)
ZIG = (sys.executable, "-m", "ziglang", "cc", *ZIG_FLAGS)
# Sources whose results are the same on every instruction set: no product is fused with a sum.
EXACT = ("random.c", "records.c", "strokes.c", "transform.c")


@dataclass(frozen=True)
class Variant:
    """One instruction set that the sources are compiled for; `vector` is in floats."""

    isa: str
    vector: int
    flags: tuple[str, ...]


_AVX2 = ("-mavx2", "-mfma", "-mf16c")
_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mprefer-vector-width=512")
# By machine, from the lowest to the highest.
VARIANTS = {
    "x86_64": (
        Variant("baseline", 4, ()),
        Variant("avx2", 8, _AVX2),
        Variant("avx512", 16, (*_AVX2, *_AVX512)),
    ),
    "aarch64": (Variant("neon", 4, ()),),
}
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_SUFFIXES = {"darwin": ".dylib", "win32": ".dll"}


class BuildError(Exception):
    """The sources could not be compiled; the text says why."""


class NoCompiler(BuildError):
    """There is no C compiler that compiles the sources."""


@dataclass(frozen=True)
class Target:
    """The machine that libraries are compiled for; `flags` select it when cross-compiling."""

    machine: str
    system: str  # as in sys.platform
    flags: tuple[str, ...] = ()

    @property
    def variants(self) -> tuple[Variant, ...]:
        return VARIANTS.get(self.machine, ())

    def library(self, isa: str) -> str:
        """The file name of a library."""
        return f"libfire_{isa}{_SUFFIXES.get(self.system, '.so')}"


# The targets that zig compiles for from any machine, by the platform tag of their wheels.
PLATFORMS = {
    "manylinux_2_17_x86_64": Target("x86_64", "linux", ("-target", "x86_64-linux-gnu.2.17")),
    "manylinux_2_17_aarch64": Target("aarch64", "linux", ("-target", "aarch64-linux-gnu.2.17")),
    "macosx_11_0_x86_64": Target("x86_64", "darwin", ("-target", "x86_64-macos.11.0")),
    "macosx_11_0_arm64": Target("aarch64", "darwin", ("-target", "aarch64-macos.11.0")),
    "win_amd64": Target("x86_64", "win32", ("-target", "x86_64-windows-gnu")),
}


def this_machine() -> Target:
    """Return the target on which this process runs."""
    machine = platform.machine().lower()
    return Target(_MACHINES.get(machine, machine), sys.platform)


@cache
def compiler() -> tuple[str, ...]:
    """Return the command of a C compiler that compiles the sources, or raise NoCompiler.

    $CC, cc, gcc and clang are tried in this order, then the ziglang wheel.
    """
    tried = []
    for command in _compilers():
        problem = _problem(command)
        if problem is None:
            return command
        tried.append(f"{shlex.join(command)}: {problem}")
    raise NoCompiler("; ".join(tried) or "there is no cc, gcc or clang, and no ziglang wheel")


def _compilers() -> Iterator[tuple[str, ...]]:
    named = os.environ.get("CC")
    if named:
        command = tuple(shlex.split(named, posix=os.name != "nt"))
        yield (*command, *ZIG_FLAGS) if "zig" in named else command
    for name in ("cc", "gcc", "clang"):
        if shutil.which(name):
            yield (name,)
    if importlib.util.find_spec("ziglang"):
        yield ZIG


def _problem(command: tuple[str, ...]) -> str | None:
    """Say why a compiler cannot compile the smallest source for this machine; None if it can."""
    target = this_machine()
    if not target.variants:
        return f"there are no kernels for {target.machine}"
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "trial.so"
        try:
            _link(command, [SOURCES / "isa.c"], library, target, target.variants[-1])
        except BuildError as error:
            return str(error).strip().partition("\n")[0]
    return None


def fingerprint() -> str:
    """Return the digest of everything that the libraries depend on, except the compiler."""
    return _digest(*(path.name.encode() + b"\0" + path.read_bytes() for path in _inputs()))


def _inputs() -> list[Path]:
    """List the sources, the headers and this file, which has the flags."""
    return sorted([*SOURCES.glob("*.[ch]"), Path(__file__).resolve()])


def _digest(*parts: bytes) -> str:
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little") + part)
    return found.hexdigest()


def is_current(folder: Path = SOURCES) -> bool:
    """Return True if the libraries in a folder were compiled from the sources as they are."""
    try:
        return (folder / RECORD).read_text().strip() == fingerprint()
    except OSError:
        return False


def update() -> str | None:
    """Compile the libraries beside the sources unless they are current.

    Only one process at a time does so; others wait for it. Returns the compiler's warnings, or
    None if there was nothing to do.
    """
    if is_current():
        return None
    with _locked(SOURCES / "build.lock"):
        if is_current():  # another process has compiled them
            return None
        return build(SOURCES, objects=SOURCES / OBJECTS)


def build(
    folder: Path,
    target: Target | None = None,
    command: Sequence[str] | None = None,
    objects: Path | None = None,
    flags: Sequence[str] = (),
    sources: Sequence[Path] | None = None,
) -> str:
    """Compile every library of a target into a folder, and return the compiler's warnings.

    Args:
        folder: Where the libraries and the record of their fingerprint are written.
        target: The machine to compile for; this one by default.
        command: The compiler; by default the first that works here.
        objects: A folder that keeps object files, which the next build uses again.
        flags: More flags for the compiler and the linker, such as a sanitizer's.
        sources: Other sources than all of this folder, for tests.

    Raises:
        BuildError: The compiler failed; the text has its messages.
    """
    target, command = target or this_machine(), tuple(command or compiler())
    state = fingerprint()  # before anything is read, so that later changes are seen
    with contextlib.ExitStack() as stack:
        if objects is None:
            objects = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        objects.mkdir(parents=True, exist_ok=True)
        sources = sorted(SOURCES.glob("*.c")) if sources is None else sources
        pairs = [(source, variant) for variant in target.variants for source in sources]
        compiled, warnings = _compile_all(command, pairs, objects, target, tuple(flags))
        for variant in target.variants:
            own = [o for (_, v), o in zip(pairs, compiled, strict=True) if v is variant]
            library = folder / target.library(variant.isa)
            partial = library.with_name(f"{os.getpid()}.{library.name}")
            try:
                warnings += _link(command, own, partial, target, variant, flags)
                os.replace(partial, library)
            finally:
                partial.unlink(missing_ok=True)
        for old in {*objects.glob("*.o")} - set(compiled):
            old.unlink(missing_ok=True)
    (folder / RECORD).write_text(state + "\n")
    return warnings


def _compile_all(
    command: tuple[str, ...], pairs: list[tuple[Path, Variant]], objects: Path, target: Target,
    flags: tuple[str, ...],
) -> tuple[list[Path], str]:  # fmt: skip
    common = [path.read_bytes() for path in sorted(SOURCES.glob("*.h"))]

    def compile_one(pair: tuple[Path, Variant]) -> tuple[Path, str]:
        source, variant = pair
        own = _flags(target, variant) + flags
        if source.name in EXACT:
            own += ("-ffp-contract=off",)
        call = [*command, *own, f"-I{SOURCES}"]
        digest = _digest(*common, source.read_bytes(), shlex.join(call).encode())
        compiled = objects / f"{source.stem}_{variant.isa}_{digest[:16]}.o"
        if compiled.exists():
            return compiled, ""
        partial = compiled.with_suffix(f".{os.getpid()}.o")
        warnings = _run([*call, "-c", str(source), "-o", str(partial)])
        os.replace(partial, compiled)
        return compiled, warnings

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        done = list(pool.map(compile_one, pairs))
    return [compiled for compiled, _ in done], "".join(warnings for _, warnings in done)


def _link(
    command: tuple[str, ...], inputs: Sequence[Path], library: Path, target: Target,
    variant: Variant, flags: Sequence[str] = (),
) -> str:  # fmt: skip
    libraries = [] if target.system == "win32" else ["-pthread", "-lm"]
    return _run([
        *command, *_flags(target, variant), *flags, "-shared", *map(str, inputs), "-o",
        str(library), *libraries,
    ])  # fmt: skip


def _flags(target: Target, variant: Variant) -> tuple[str, ...]:
    return *target.flags, *FLAGS, f"-DVECTOR={variant.vector}", *variant.flags


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    except OSError as error:
        raise BuildError(str(error)) from error
    if done.returncode:
        raise BuildError(done.stderr or f"{shlex.join(command)} ended with {done.returncode}")
    return done.stderr


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Context manager: hold a lock file, after waiting for the process that holds it."""
    with path.open("a+b") as file:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Compile what has changed, and show what the compiler says."""
    try:
        warnings = update()
    except BuildError as error:
        sys.exit(str(error))
    print("nothing has changed" if warnings is None else f"{warnings}compiled {SOURCES}")


if __name__ == "__main__":
    main()
