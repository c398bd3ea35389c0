"""Test modules that mpiexec runs as several ranks; the last line that rank 0 prints is JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.errors import FireError
from pycaffe_fire.parallel.launch import find_mpiexec

ROOT = Path(__file__).parents[2]
JOBS: list[subprocess.Popen[str]] = []  # of the running test; see conftest.py
# More ranks than cores must not spin while they wait for each other.
PATIENT = {
    "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "10",
    "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
}  # fmt: skip


def run_ranks(module: str, ranks: int) -> Any:
    """What rank 0 of `python -m module` on this many ranks found."""
    try:
        mpiexec = find_mpiexec()
    except FireError as error:
        pytest.skip(str(error))
    if importlib.util.find_spec("mpi4py") is None:
        pytest.skip("mpi4py is missing: pip install mpi4py")
    done = subprocess.run(
        [mpiexec, "-n", str(ranks), sys.executable, "-m", module],
        cwd=ROOT, env={**os.environ, **PATIENT}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
