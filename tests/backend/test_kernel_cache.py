"""Compiled kernels lie in the user's cache folder, and outlive changes of other kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import numpy as np
from tests.backend.sample_kernel import add_into
total = np.ones(4, np.float32)
add_into(total, total)
print(total[0], sum(add_into.compiled.stats.cache_hits.values()))
"""


def run(**variables: str) -> str:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    environment.update(variables)
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="XDG folders are Linux's")
def test_kernels_are_compiled_once_into_the_cache_folder(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    assert run(XDG_CACHE_HOME=str(tmp_path)) == "2.0 0"
    (index,) = (tmp_path / "pycaffe_fire" / "kernels").glob("*.nbi")
    assert index.name.startswith("sample_kernel.add_into-")
    assert run(XDG_CACHE_HOME=str(tmp_path)) == "2.0 1"


def test_another_folder_for_them(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    assert run(NUMBA_CACHE_DIR=str(tmp_path)) == "2.0 0"
    assert len(list(tmp_path.glob("*.nbc"))) == 1
