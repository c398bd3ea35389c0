#!/usr/bin/env python3
"""Run the CPU kernels under AddressSanitizer and UndefinedBehaviorSanitizer.

    python tools/sanitize.py                             the kernel tests, then the fuzzer
    python tools/sanitize.py --minutes 0                 the kernel tests alone
    python tools/sanitize.py tests/backend/test_random.py --minutes 0

The kernels are compiled a second time, into build/sanitized. A kernel that reads or writes outside
an array, overflows an integer or shifts too far ends the process with a report. Needs gcc with
libasan (Debian: gcc).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pycaffe_fire.backend.cpu.library import FOLDER_VARIABLE  # noqa: E402
from pycaffe_fire.backend.cpu.native import build  # noqa: E402

FOLDER = ROOT / "build" / "sanitized"
FLAGS = (
    "-O1", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
)  # fmt: skip
KINDS = ("datum", "records", "lmdb", "image", "list", "windows", "transform")  # of the fuzzer
# Tests take these fixtures of tests/conftest.py to run kernels on every instruction set.
ISA_FIXTURE = re.compile(r"\b(native_)?isa: str\b")


def compile_kernels(folder: Path = FOLDER, sources: Sequence[Path] | None = None) -> None:
    """Compile sanitized libraries into a folder: all kernels, or those of some sources."""
    build.build(folder, objects=folder / "objects", flags=FLAGS, sources=sources)


def environment(folder: Path = FOLDER) -> dict[str, str]:
    """Return the environment in which a process loads the libraries of a folder.

    Raises:
        BuildError: The compiler has no AddressSanitizer.
    """
    command = [*build.compiler(), "-print-file-name=libasan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(found):
        raise build.BuildError(f"{build.compiler()[0]} has no libasan; gcc has (Debian: gcc)")
    return {
        **os.environ,
        FOLDER_VARIABLE: str(folder),
        "LD_PRELOAD": found,  # the sanitizer must be the first library of a process
        # Python never frees some of its memory; an array that is too large is a MemoryError.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def kernel_tests() -> list[str]:
    """List the test files that run kernels on every instruction set."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [str(path) for path in paths if ISA_FIXTURE.search(path.read_text())]


def run_tests(tests: Sequence[str], folder: Path = FOLDER) -> bool:
    """Run the tests of these files that have an instruction set in their names.

    Others run libraries that have errors of their own; an emulator of another processor is no
    program for this sanitizer.
    """
    names = " or ".join(variant.isa for variant in build.this_machine().variants)
    chosen = ["-k", f"({names}) and not emulated", *tests]
    return _run(["pytest", "-q", "--capture=sys", *chosen], folder)  # the report is not captured


def run_fuzzer(minutes: float, folder: Path = FOLDER) -> bool:
    """Mutate files of the kinds that kernels read."""
    kinds = [word for kind in KINDS for word in ("--kind", kind)]
    return _run(["tests.fuzz", "--minutes", str(minutes), *kinds], folder)


def _run(module: list[str], folder: Path) -> bool:
    command = [sys.executable, "-m", *module]
    return subprocess.run(command, env=environment(folder), cwd=ROOT).returncode == 0


def main() -> int:
    """Compile the kernels, then run tests and the fuzzer; returns 1 if anything failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", help="test files; default: all that run kernels")
    parser.add_argument("--minutes", type=float, default=1.0, help="for the fuzzer; 0: without it")
    options = parser.parse_args()
    try:
        environment()
        compile_kernels()
    except build.BuildError as error:
        sys.exit(str(error))
    passed = run_tests(options.tests or kernel_tests())
    if options.minutes:
        passed &= run_fuzzer(options.minutes)
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
