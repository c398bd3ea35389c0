"""tools/sanitize.py: what a wrong kernel does is caught, and right ones pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sanitize

from pycaffe_fire.backend.cpu.native import build

ROOT = Path(__file__).parents[2]
COMMON = [build.SOURCES / name for name in ("tasks.c", "isa.c")]

WRONG = """
#include "fire.h"

struct reach { int64_t threads; const int32_t *x; int32_t *y; int64_t count; };

static void add_next(int64_t task, const void *args) {
    const struct reach *a = args;
    a->y[task] = a->x[task] + a->x[task + 1];
}

KERNEL(reach) { run_tasks(a->count, add_next, a, a->threads); }
"""

CALL = """
import sys
import numpy as np
from pycaffe_fire.backend.cpu.library import Int32s, Kernel, load

class Reach(Kernel):
    name = "reach"
    x: Int32s
    y: Int32s
    count: int

    def check(self):
        pass

print(load().path)
x = np.full(1000, int(sys.argv[1]), np.int32)
Reach(threads=2, x=x, y=np.zeros(1000, np.int32), count=int(sys.argv[2])).run()
print("survived")
"""


@pytest.fixture(scope="module", autouse=True)
def _needs_a_sanitizer() -> None:
    try:
        sanitize.environment()
    except build.BuildError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of libraries with a kernel that reads one element more than it is told."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "reach.c").write_text(WRONG)
    sanitize.compile_kernels(folder, [*COMMON, folder / "reach.c"])
    return folder


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CALL, *arguments], capture_output=True, text=True, timeout=120,
        cwd=ROOT, env=sanitize.environment(folder),
    )  # fmt: skip


def test_a_kernel_that_stays_inside_its_arrays(wrong: Path) -> None:
    done = call(wrong, "1", "999")
    assert done.returncode == 0, done.stderr
    path, word = done.stdout.split()
    assert Path(path).parent == wrong and word == "survived"


def test_a_read_past_the_end_is_caught(wrong: Path) -> None:
    done = call(wrong, "1", "1000")
    assert done.returncode and "survived" not in done.stdout
    assert "heap-buffer-overflow" in done.stderr and "add_next" in done.stderr


def test_an_overflow_is_caught(wrong: Path) -> None:
    done = call(wrong, str(2**31 - 1), "999")
    assert done.returncode and "survived" not in done.stdout
    assert "signed integer overflow" in done.stderr and "reach.c:8" in done.stderr


def test_the_tests_of_one_family(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sanitize.compile_kernels(tmp_path, [*COMMON, build.SOURCES / "random.c"])
    passed = sanitize.run_tests(["tests/backend/test_random.py"], tmp_path)
    shown = capfd.readouterr().out
    assert passed and " passed" in shown and "skipped" not in shown, shown


def test_files_that_run_kernels_are_found() -> None:
    found = {Path(path).name for path in sanitize.kernel_tests()}
    assert {"test_native.py", "test_random.py", "test_transformer.py"} <= found
