"""Snapshots of jobs of several ranks: who writes them, and what resumed ranks go on with."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="several ranks need mpi4py")

from tests.parallel.test_jobs import PYTHON, TROUBLE, ranks_of, start, wait_for, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def run(folder: Path, *flags: str, status: int = 0) -> str:
    job = start(folder, *flags)
    output, _ = job.communicate(timeout=120)
    assert (job.returncode == 0) == (status == 0), output
    return output


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_ranks_go_on_where_one_process_stopped_and_back(folder: Path) -> None:
    """All ranks take the newest good snapshot; rank 0 says which and why."""
    write(folder, 6, snapshot=2)
    flags = ["--leaves", "4", "--keep-best", "loss"]
    run(folder, *flags)
    final = digest(folder / "snap_iter_6.caffemodel")
    for path in folder.glob("snap_iter_6.*"):
        path.unlink()
    (folder / "snap_iter_4.caffemodel").write_bytes(b"damaged")
    output = run(folder, *flags, "-n", "2", "--snapshot", "auto")
    assert output.count("skipped snap_iter_4.solverstate: ") == 1
    assert "Resuming from snap_iter_2.solverstate" in output
    assert digest(folder / "snap_iter_6.caffemodel") == final
    assert output.count("Snapshotting to binary proto file snap_iter_4.caffemodel") == 1
    for path in folder.glob("snap_iter_6.*"):
        path.unlink()
    output = run(folder, *flags, "--snapshot", "auto")
    assert "Resuming from snap_iter_4.solverstate" in output
    assert digest(folder / "snap_iter_6.caffemodel") == final


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the ranks in /proc")
def test_a_restarted_job_ends_with_the_same_bits(folder: Path) -> None:
    write(folder, 1000, snapshot=20)
    run(folder, "--leaves", "2")
    final = digest(folder / "snap_iter_1000.caffemodel")
    for path in folder.glob("snap_iter_*"):
        if "iter_900" not in path.name:
            path.unlink()
    # What the run before left at iteration 900 is none of this job's business.
    job = start(folder, "-n", "2", "--leaves", "2", "--restarts", "1", "--keep", "2")
    wait_for(folder, job, "snap_iter_[1-5]?0.solverstate")
    os.kill(list(ranks_of(job))[-1], signal.SIGKILL)
    output, _ = job.communicate(timeout=120)
    assert job.returncode == 0, output
    (resumed,) = re.findall(r"Resuming from snap_iter_(\d+)\.solverstate", output)
    assert int(resumed) < 900
    assert digest(folder / "snap_iter_1000.caffemodel") == final


def test_a_job_that_saved_nothing_starts_as_it_did(folder: Path) -> None:
    (folder / "trouble.py").write_text(TROUBLE)
    write(folder, 6)
    run(folder, "--leaves", "2")  # leaves snapshots of its own
    write(folder, 100, extra=PYTHON)
    job = start(folder, "-n", "2", "--restarts", "1", "--allow-python-layers", "--leaves", "2")
    output, _ = job.communicate(timeout=120)
    assert "starting again" in output and "Resuming" not in output


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_ends_all_ranks_with_one_sentence(folder: Path) -> None:
    write(folder, 6, snapshot=2)
    disk = folder / "out"
    disk.mkdir()
    text = (folder / "solver.prototxt").read_text().replace('"snap"', '"out/snap"')
    (folder / "solver.prototxt").write_text(text)
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small file system is not permitted")
    try:
        began = time.monotonic()
        output = run(folder, "-n", "2", status=1)
        assert time.monotonic() - began < 60
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert "Snapshot at iteration 6 failed" in output and "No space left" in output
    assert output.count("iteration 6 could not be saved") == 1
