"""Snapshots of jobs of several ranks: who writes them, and what resumed ranks go on with."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="several ranks need mpi4py")

from tests.parallel.test_jobs import PYTHON, TROUBLE, run, run_here, start, write

# Kills rank 1 in iteration 30; a job that is left with one rank goes on.
DEATH = TROUBLE.replace("self.passes == 4", "self.passes == 30").replace(
    'raise RuntimeError("the fourth pass is too much")', "os.kill(os.getpid(), 9)"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_ranks_go_on_where_one_process_stopped_and_back(folder: Path) -> None:
    """All ranks take the newest good snapshot; rank 0 says which and why."""
    write(folder, 6, snapshot=2)
    flags = ["--leaves", "4", "--keep-best", "loss"]
    run_here(folder, *flags)
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
    output = run_here(folder, *flags, "--snapshot", "auto")
    assert "Resuming from snap_iter_4.solverstate" in output
    assert digest(folder / "snap_iter_6.caffemodel") == final


def test_a_restarted_job_ends_with_the_same_bits(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "trouble.py").write_text(DEATH)
    monkeypatch.syspath_prepend(str(folder))
    write(folder, 60, snapshot=8, extra=PYTHON)
    run_here(folder, "--leaves", "2", "--allow-python-layers")
    final = digest(folder / "snap_iter_60.caffemodel")
    for path in folder.glob("snap_iter_*"):
        if "iter_48" not in path.name:
            path.unlink()
    # What the run before left at iteration 48 is none of this job's business.
    flags = ["--leaves", "2", "--allow-python-layers", "--keep", "2"]
    output = run(folder, *flags, "-n", "2", "--restarts", "1")
    assert "starting again with 1 rank(s)" in output and "Going on from iteration" in output
    (resumed,) = re.findall(r"Resuming from snap_iter_(\d+)\.solverstate", output)
    assert int(resumed) in (16, 24)  # the last may have been about to be written
    assert digest(folder / "snap_iter_60.caffemodel") == final


def test_a_job_that_saved_nothing_starts_as_it_did(folder: Path) -> None:
    (folder / "trouble.py").write_text(TROUBLE)
    write(folder, 6)
    run_here(folder, "--leaves", "2")  # leaves snapshots of its own
    write(folder, 10, extra=PYTHON)
    job = start(folder, "-n", "2", "--restarts", "1", "--allow-python-layers", "--leaves", "2")
    output, _ = job.communicate(timeout=240)
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
        job = start(folder, "-n", "2")
        output, _ = job.communicate(timeout=240)
        assert job.returncode != 0
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert "Snapshot at iteration 6 failed" in output and "No space left" in output
    assert output.count("iteration 6 could not be saved") == 1
