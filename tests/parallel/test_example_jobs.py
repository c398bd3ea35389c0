"""The trainings in examples/ for sequences, pixels and boxes: the same bits on ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="several ranks need mpi4py")

from tests.parallel.test_jobs import weights  # noqa: E402
from tests.pycaffe.cases import DROPIN  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "data"), [("crnn", "--rows"), ("fcn", "--images"), ("ssd", "--images")]
)
def test_ranks_give_the_bits_of_one_process(name: str, data: str, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py", "--prepare", data, "64",
         "--iterations", "6"],
        cwd=tmp_path, check=True, capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(DROPIN)])},
    )  # fmt: skip
    solver = tmp_path / "solver.prototxt"
    solver.write_text(solver.read_text().replace(f'"{name}"', '"snap"'))
    alone = weights(tmp_path, "--leaves", "4")
    assert weights(tmp_path, "--leaves", "4", "-n", "3") == alone
