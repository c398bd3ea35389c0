"""Kernels under AddressSanitizer: no read or write outside an array, in layers or whole nets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda.cuda_emulator import compiler_missing

HERE = Path(__file__).parent
OVERRUN = """
import numpy as np
from tests.cuda.cuda_emulator import Compiler, Module
Module.compiler = Compiler(("-O0", "-g1", "-w", "-fsanitize=address"))
source = 'extern "C" __global__ void copy(int n, const float* x, float* y) {' \\
         ' int i = threadIdx.x; if (i <= n) y[i] = x[i]; }'
x, y = np.zeros(3000, np.float32), np.zeros(700, np.float32)
Module(source)["copy"]((1,), (1024,), (np.int32(700), x, y))
"""


def sanitized(*command: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the sanitizer loaded first, as it must be."""
    libraries = [
        subprocess.run(
            ["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    if not all(os.path.isabs(path) for path in libraries):
        pytest.skip("this g++ has no AddressSanitizer")
    environment = {
        **os.environ, "CUDAEMU_SANITIZE": "1", "ASAN_OPTIONS": "detect_leaks=0",
        "LD_PRELOAD": " ".join(libraries), "PYTHONPATH": str(HERE.parents[1]),
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, timeout=300
    )


@pytest.fixture(autouse=True)
def _needs_a_compiler() -> None:
    reason = compiler_missing()
    if reason:
        pytest.skip(reason)


def test_an_overrun_is_found() -> None:
    done = sanitized("-c", OVERRUN)
    assert done.returncode and "heap-buffer-overflow" in done.stderr


def test_nets_and_layers_stay_inside_their_arrays() -> None:
    chosen = (
        "leaves or (trains and inception and float16 and not bfloat16) or "
        "(reference and not alex and (conv_ or pool_ or bn_ or softmax or concat or ip_)) or "
        "in_packs or (batch_norm and 72)"
    )
    done = sanitized(
        "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", chosen,
        *(str(HERE / f"test_{name}.py") for name in ("layers", "training", "storage", "layouts")),
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert " passed" in done.stdout
