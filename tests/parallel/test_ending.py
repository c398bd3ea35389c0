"""A rank that gives up takes the others with it, and what it said last is heard."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="several ranks need mpi4py")

from pycaffe_fire.parallel import ending
from pycaffe_fire.parallel.launch import find_mpiexec
from tests.parallel.ranks import JOBS, PATIENT, ROOT


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for an ended rank in /proc")
@pytest.mark.parametrize("how", ["abort", "hang_up"])
def test_a_launcher_that_looked_away_ends_the_others(how: str) -> None:
    """MPICH's would wait for them for ever if the rank simply exited."""
    job = subprocess.Popen(
        [find_mpiexec(), "-n", "2", sys.executable, "-m", "tests.parallel.ending_ranks", how],
        cwd=ROOT, env={**os.environ, **PATIENT}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    JOBS.append(job)
    output, _ = job.communicate(timeout=60)
    assert job.returncode != 0
    assert "last words" in output


@contextmanager
def launcher() -> Iterator[int]:
    """Where a launcher would read what this process prints."""
    (theirs, ours), saved = os.pipe(), os.dup(1)
    os.dup2(ours, 1)
    try:
        yield theirs
    finally:
        os.dup2(saved, 1)
        for descriptor in (theirs, ours, saved):
            os.close(descriptor)


def test_words_are_heard_when_they_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "HEARING", 60.0)
    with launcher() as reader:
        os.write(1, b"words")
        waiting = threading.Thread(target=ending.wait_until_heard)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        assert os.read(reader, 100) == b"words"
        waiting.join(30)
        assert not waiting.is_alive()


def test_nobody_waits_for_readers_that_do_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "HEARING", 0.1)
    with launcher() as reader:
        os.write(1, b"words")
        ending.wait_until_heard()
        assert os.read(reader, 100) == b"words"  # they are still there
