"""pycaffe's NCCL object: alone, in an MPI job, and what is said where neither fits."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pycaffe_fire as caffe
from pycaffe_fire.parallel.launch import find_mpiexec
from tests.pycaffe.cases import DROPIN, DUMMY, solver_file

SCRIPT = Path(__file__).parents[2] / "examples" / "several_solvers.py"
SETTINGS = "random_seed: 5 max_iter: 4 display: 2 momentum: 0.9"


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(DROPIN.parent.parent), str(DROPIN)])
    return subprocess.run(
        [*command, sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )  # fmt: skip


def test_a_script_of_one_solver() -> None:
    solver_file(SETTINGS)
    done = run()
    assert done.returncode == 0, done.stderr
    assert re.match(r"rank 0 of 1: \w{64}$", done.stdout)
    assert "solver total" in done.stderr and "Iteration 2, lr = 0.1" in done.stderr


def test_solvers_of_a_job_train_together() -> None:
    pytest.importorskip("mpi4py", reason="several ranks need mpi4py")
    alone = caffe.SGDSolver(solver_file(SETTINGS), leaves=2)
    alone.step(4)
    alone.close()
    expected = hashlib.sha256(alone.net.params["ip"][0].data.tobytes()).hexdigest()
    done = run(find_mpiexec(), "-n", "2")
    assert done.returncode == 0, done.stderr
    found = sorted(re.findall(r"rank (\d) of 2: (\w{64})", done.stdout))
    assert found == [("0", expected), ("1", expected)]


def test_a_solver_that_fails_ends_the_job() -> None:
    pytest.importorskip("mpi4py", reason="several ranks need mpi4py")
    solver_file(SETTINGS)
    done = run(find_mpiexec(), "-n", "2", FAIL="1")
    assert done.returncode != 0 and "this solver has had enough" in done.stderr


def test_more_solvers_than_processes() -> None:
    file = solver_file(net=DUMMY)
    caffe.set_solver_count(3)
    try:
        with pytest.raises(caffe.FireError, match=r"set_solver_count\(3\).*mpiexec -n 3"):
            caffe.SGDSolver(file)
    finally:
        caffe.set_solver_count(1)


def test_a_job_whose_solver_was_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    solver = caffe.SGDSolver(solver_file())
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(caffe.FireError, match=r"2 processes.*set_solver_count\(2\)"):
        caffe.NCCL(solver, caffe.NCCL.new_uid())


def test_uids_differ() -> None:
    assert caffe.NCCL.new_uid() != caffe.NCCL.new_uid()
