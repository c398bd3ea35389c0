"""Compiled kernels lie in the user's cache folder and outlive changes of files without kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pycaffe_fire.backend import kernel_cache

CODE = """
import numpy as np
from pycaffe_fire.backend.kernels.update import sums_in_order
total = np.zeros(1)
sums_in_order(np.ones(4), np.array([0, 4]), total)
print(total[0], sum(sums_in_order.stats.cache_hits.values()))
"""


def run(cache: Path) -> str:
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="XDG folders are Linux's")
def test_kernels_are_compiled_once_into_the_cache_folder(tmp_path: Path) -> None:
    pytest.importorskip("numba")
    assert run(tmp_path) == "4.0 0"
    (index,) = (tmp_path / "pycaffe_fire" / "kernels").glob("*/*.nbi")
    assert index.parent.name.startswith("update-")
    assert run(tmp_path) == "4.0 1"


def test_only_sources_of_kernels_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("backend/compiled.py", "backend/kernels/lrn.py", "solver/solver.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(kernel_cache, "PACKAGE", tmp_path)

    def digest() -> str:
        kernel_cache.digest.cache_clear()
        return kernel_cache.digest(tmp_path / "backend/kernels/lrn.py")

    before = digest()
    (tmp_path / "solver/solver.py").write_text("changed")
    assert digest() == before
    (tmp_path / "backend/compiled.py").write_text("changed")
    assert digest() != before
    kernel_cache.digest.cache_clear()
