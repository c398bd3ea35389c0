"""A real Slurm with two nodes: a job that is asked to stop saves, is queued again and goes on.

One test runs wherever Slurm is installed; it takes half a minute, most of it Slurm's own pauses.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mpi4py", reason="several ranks need mpi4py")

from tests.parallel.test_jobs import run_here, write

ROOT = Path(__file__).parents[2]
BATCH = ROOT / "tools" / "deploy" / "train.sbatch"
ITERATIONS = 200
PATIENCE = 240.0  # seconds
thorough = pytest.mark.skipif(
    not os.environ.get("FIRE_SLURM"), reason="takes minutes: set FIRE_SLURM=1 (tools/slurm)"
)
# UCX's addresses may be longer than Slurm's PMI takes.
NETWORK = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}


def _local_slurm() -> Any:
    spec = importlib.util.spec_from_file_location(
        "local_slurm", ROOT / "tools" / "slurm" / "local_slurm.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _local_slurm()
pytestmark = pytest.mark.skipif(bool(tool.missing()), reason=tool.missing() or "there is one")


@pytest.fixture(scope="module")
def slurm() -> Iterator[Any]:
    with (
        tempfile.TemporaryDirectory(prefix="slurm") as folder,  # short, for munge's socket
        tool.LocalSlurm(Path(folder)) as running,
    ):
        running.environment.update(NETWORK)
        yield running


@pytest.fixture
def folder(tmp_path: Path, slurm: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run, and fire_train as a site would have it installed."""
    write(tmp_path, ITERATIONS, snapshot=10**7)
    program = tmp_path / "bin" / "fire_train"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m pycaffe_fire.cli.fire_train --threads 1 "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setitem(slurm.environment, "PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setitem(slurm.environment, "PYTHONPATH", str(ROOT))
    return tmp_path


def submit(slurm: Any, folder: Path) -> str:
    done = subprocess.run(
        ["sbatch", "--parsable", "--nodes", "2", "--ntasks-per-node", "1", "--output", "out.txt",
         str(BATCH), "solver.prototxt", "--leaves", "2"],
        cwd=folder, env=slurm.environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def wait_for(folder: Path, text: str) -> str:
    """The job's output, once it has the text."""
    deadline = time.monotonic() + PATIENCE
    while True:
        output = (folder / "out.txt").read_text() if (folder / "out.txt").exists() else ""
        if re.search(text, output):
            return output
        assert time.monotonic() < deadline, output[-3000:]
        time.sleep(0.2)


def state(slurm: Any, job: str) -> str:
    found = re.search(r"JobState=(\S+)", slurm.run("scontrol", "show", "job", job).stdout)
    return found[1] if found else ""


def wait_for_state(slurm: Any, job: str, *wanted: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while state(slurm, job) not in wanted:
        assert time.monotonic() < deadline, state(slurm, job)
        time.sleep(0.2)


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / f"snap_iter_{ITERATIONS}.caffemodel").read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["TERM", pytest.param("USR1", marks=thorough)])
def test_a_job_asked_to_stop_is_queued_again_and_ends_with_the_same_bits(
    slurm: Any, folder: Path, name: str
) -> None:
    job = submit(slurm, folder)
    wait_for(folder, r"Iteration 10\b")
    slurm.run("scancel", f"--signal={name}", job)  # to its step, as before a time limit
    wait_for(folder, rf"Stopping as SIG{name} asks")
    wait_for_state(slurm, job, "COMPLETED")
    output = (folder / "out.txt").read_text()
    (stopped,) = re.findall(r"Resuming from snap_iter_(\d+)\.solverstate", output)
    assert 0 < int(stopped) < ITERATIONS and "Communicator: halving, 2 ranks" in output
    requeued = digest(folder)
    for path in folder.glob("snap*"):
        path.unlink()
    run_here(folder, "--leaves", "2")
    assert digest(folder) == requeued


@thorough
def test_a_cancelled_job_saves_and_is_not_queued_again(slurm: Any, folder: Path) -> None:
    job = submit(slurm, folder)
    wait_for(folder, r"Iteration 50\b")
    slurm.run("scancel", job)
    wait_for_state(slurm, job, "CANCELLED", "")
    deadline = time.monotonic() + PATIENCE
    while not list(folder.glob("snap_iter_*.solverstate")):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(8)  # longer than a job that is queued again has to wait
    assert state(slurm, job) in ("CANCELLED", "")


@thorough
def test_tasks_without_pmi_are_told_what_to_say(slurm: Any, folder: Path) -> None:
    done = subprocess.run(
        ["srun", "--mpi=none", "-n2", "fire_train", "--solver", "solver.prototxt"],
        cwd=folder, env=slurm.environment, capture_output=True, text=True, timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 1
    assert "srun started 2 tasks" in done.stderr and "srun --mpi=pmi2" in done.stderr


def test_bash_accepts_the_batch_script() -> None:
    assert shutil.which("bash")
    subprocess.run(["bash", "-n", str(BATCH)], check=True)
