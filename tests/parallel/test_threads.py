"""How many threads a rank takes, with real affinity masks."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.parallel.communicator import SerialCommunicator
from pycaffe_fire.parallel.threads import choose_threads

ROOT = Path(__file__).parents[2]
PROGRAM = """
import os
from pycaffe_fire.parallel.job import join
from pycaffe_fire.parallel.threads import choose_threads
ranks = join()
chosen = ranks.gather(str(choose_threads(ranks)))
if ranks.rank == 0:
    print("; ".join(chosen))
"""


class Host(SerialCommunicator):
    """A rank beside others on this host, and one elsewhere, with these masks."""

    def __init__(self, *masks: set[int]) -> None:
        self.masks = masks

    def gather(self, value: Any) -> list[Any]:
        here = [(socket.gethostname(), frozenset(mask)) for mask in self.masks]
        return [value, *here, ("elsewhere", value[1])]


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)


@pytest.mark.parametrize(
    ("masks", "environment", "chosen"),
    [
        ([], {}, "8 (8 cores of its own)"),
        ([set(range(8))] * 3, {}, "2 (8 cores for 4 ranks)"),
        ([set(range(8, 16)), set(range(16, 24))], {}, "8 (8 cores of its own)"),
        ([set(range(8)), set(range(8, 16))], {}, "4 (8 cores for 2 ranks)"),
        ([set(range(8))] * 15, {}, "1 (8 cores for 16 ranks)"),
        ([set(range(8))], {"SLURM_CPUS_PER_TASK": "3"}, "3 (SLURM_CPUS_PER_TASK)"),
        ([set(range(8))] * 3, {"SLURM_CPUS_PER_TASK": "8"}, "2 (8 cores for 4 ranks)"),
        ([], {"OMP_NUM_THREADS": "5,2", "SLURM_CPUS_PER_TASK": "3"}, "5 (OMP_NUM_THREADS)"),
        ([], {"OMP_NUM_THREADS": "many"}, "8 (8 cores of its own)"),
    ],
)
def test_threads_of_a_rank(
    cores: None, masks: list[set[int]], environment: dict[str, str], chosen: str
) -> None:
    assert str(choose_threads(Host(*masks), None, environment)) == chosen


def test_the_flag_comes_first(cores: None) -> None:
    assert str(choose_threads(Host(), 3, {"OMP_NUM_THREADS": "5"})) == "3 (--threads)"


@pytest.mark.skipif(
    not shutil.which("taskset") or len(os.sched_getaffinity(0)) < 2, reason="binds to two cores"
)
@pytest.mark.parametrize(
    ("binding", "found"),
    [
        ("$PMI_RANK", r"1 \(1 core of its own\); 1 \(1 core of its own\)"),
        ("0,1", r"1 \(2 cores for 2 ranks\); 1 \(2 cores for 2 ranks\)"),
    ],
)
def test_ranks_under_real_masks(binding: str, found: str) -> None:
    """Two ranks with a core each, or with the same two cores."""
    pytest.importorskip("mpi4py", reason="several ranks need mpi4py")
    from pycaffe_fire.parallel.launch import find_mpiexec

    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("cores 0 and 1 belong to others")
    bind = ["sh", "-c", f'exec taskset -c {binding} "$@"', "sh"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in ("OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"):
        environment.pop(name, None)
    done = subprocess.run(
        [find_mpiexec(), "-n", "2", *bind, sys.executable, "-c", PROGRAM],
        env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert re.fullmatch(found, done.stdout.strip()), done.stdout + done.stderr
