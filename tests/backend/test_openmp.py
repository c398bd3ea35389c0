"""How long threads wait is decided before libgomp is loaded, and the user's word counts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pycaffe_fire.backend import openmp

# libgomp reports its settings when it is loaded.
CODE = """
import os
from pycaffe_fire.backend import cpu_backend
assert "libgomp" not in open("/proc/self/maps").read(), "it is loaded too early"
os.environ["OMP_DISPLAY_ENV"] = "verbose"
cpu_backend()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="libgomp reports its settings on Linux")
@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, openmp.SOME), ({openmp.SPINS: "7"}, "7"), ({openmp.POLICY: "passive"}, "0")],
    ids=["nothing given", "a count", "a policy"],
)
def test_libgomp_takes_it(given: dict[str, str], spins: str) -> None:
    pytest.importorskip("pycaffe_fire.backend.onednn")
    mine = {k: v for k, v in os.environ.items() if k not in (openmp.POLICY, openmp.SPINS)}
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120, check=True,
        env={**mine, **given},
    )  # fmt: skip
    assert f"GOMP_SPINCOUNT = '{spins}'" in done.stderr
