"""Ranks and launchers killed at random: who died is named, nobody goes on alone, nothing is lost.

FIRE_KILLS=50 python -m pytest tests/parallel/test_kills.py kills that many times in each test.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mpi4py", reason="several ranks need mpi4py")

from pycaffe_fire.parallel.launch import find_mpiexec

from .test_jobs import (  # noqa: F401
    _rank,
    folder,
    ranks_of,
    run,
    run_here,
    start,
    wait_for,
    wait_until_gone,
    write,
)

KILLS = int(os.environ.get("FIRE_KILLS", "1"))
ITERATIONS = 60
pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the ranks in /proc")


def started(folder: Path, ranks: int, by_mpiexec: bool) -> tuple[Any, list[int]]:  # noqa: F811
    """A job that trains, and its processes by rank."""
    write(folder, 10**7, snapshot=5)
    for file in folder.glob("snap*"):
        file.unlink()
    more = ["--leaves", "4"]
    if by_mpiexec:
        job = start(folder, *more, launcher=[find_mpiexec(), "-n", str(ranks)])
    else:
        job = start(folder, "-n", str(ranks), *more)
    wait_for(folder, job, "snap_iter_5.solverstate")
    found = sorted(ranks_of(job), key=_rank)
    assert len(found) == ranks
    return job, found


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if name.startswith("mpich_shm")}


@pytest.mark.parametrize("by_mpiexec", [False, True], ids=["fire_train", "mpiexec"])
def test_the_rank_that_was_killed_is_named(folder: Path, by_mpiexec: bool) -> None:  # noqa: F811
    rng = random.Random(7)
    for turn in range(KILLS):
        ranks = 2 + (turn + by_mpiexec) % 2
        job, pids = started(folder, ranks, by_mpiexec)
        own = {name for pid in pids for name in mapped_names(pid)}
        victim = rng.randrange(ranks)
        time.sleep(rng.random())
        os.kill(pids[victim], signal.SIGKILL)
        output, _ = job.communicate(timeout=120)
        assert job.returncode != 0
        named = re.findall(r"fire_train: rank (\d+) on \S+ died; last seen: ", output)
        assert named == [str(victim)], f"kill {turn}: {output[-2000:]}"
        assert not own & shared_memory()
        wait_until_gone(pids)


def mapped_names(pid: int) -> set[str]:
    maps = Path(f"/proc/{pid}/maps").read_text()
    return set(re.findall(r"/dev/shm/(mpich_shm\S+)", maps))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGUSR1])
def test_ranks_end_with_their_launcher(folder: Path, number: int) -> None:  # noqa: F811
    job, pids = started(folder, 2, by_mpiexec=False)
    job.send_signal(number)
    job.wait(timeout=120)
    wait_until_gone(pids)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights after a run of one process that nobody killed."""
    place = tmp_path_factory.mktemp("whole")
    write(place, ITERATIONS, snapshot=3)
    run_here(place, "--leaves", "2")
    return digest(place)


@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_runs_end_with_the_bits_of_whole_ones(
    folder: Path,  # noqa: F811
    whole: str,
    ranks: int,
) -> None:
    """Killed at any moment, also while they save, and resumed from what they left."""
    write(folder, ITERATIONS, snapshot=3)
    flags = ["--leaves", "2", "--snapshot", "auto"]
    many = ["-n", str(ranks)] if ranks > 1 else []
    rng = random.Random(ranks)
    kills = 0
    while kills < KILLS:
        job = start(folder, *many, *flags)
        before = len(states(folder))
        while job.poll() is None and len(states(folder)) == before:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.3)
        victims = [*ranks_of(job)] if ranks > 1 else [job.pid]
        if job.poll() is None and victims:
            os.kill(rng.choice(victims), signal.SIGKILL)
            kills += 1
        job.communicate(timeout=120)
        if model(folder).exists():
            assert digest(folder) == whole
            for file in folder.glob("snap*"):
                file.unlink()
    (run if many else run_here)(folder, *many, *flags)
    assert digest(folder) == whole


def states(folder: Path) -> list[Path]:  # noqa: F811
    return list(folder.glob("snap_iter_*.solverstate"))


def model(folder: Path) -> Path:  # noqa: F811
    return folder / f"snap_iter_{ITERATIONS}.caffemodel"


def digest(folder: Path) -> str:  # noqa: F811
    return hashlib.sha256(model(folder).read_bytes()).hexdigest()
