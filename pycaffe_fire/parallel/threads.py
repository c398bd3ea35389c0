"""How many threads a rank gets, and why: what it was bound to, what the site said, its share.

Launchers that bind ranks leave each one its own cores; others leave all ranks of a host the same.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from ..backend import available_cores
from .communicator import Communicator

OPENMP, SLURM = "OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"


@dataclass(frozen=True)
class Threads:
    """A number of threads, and the reason for it."""

    count: int
    why: str

    def __str__(self) -> str:
        return f"{self.count} ({self.why})"


def choose_threads(
    ranks: Communicator, asked: int | None = None, environment: Mapping[str, str] = os.environ
) -> Threads:
    """What --threads says, or OMP_NUM_THREADS; else this rank's share of the cores it may run on.

    Cores that several ranks of the host may run on are divided among these. Slurm's cores per task
    are a limit where it does not bind tasks. All ranks call it together.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = frozenset(os.sched_getaffinity(0))
    else:
        cores = frozenset(range(available_cores()))
    host = socket.gethostname()
    everyone = ranks.gather((host, cores))  # also where this rank needs not know
    if asked:
        return Threads(asked, "--threads")
    if openmp := _number(environment.get(OPENMP, "").split(",")[0]):
        return Threads(openmp, OPENMP)
    sharing = sum(where == host and not cores.isdisjoint(theirs) for where, theirs in everyone)
    share = max(1, len(cores) // sharing)
    slurm = _number(environment.get(SLURM, ""))
    if slurm and slurm < share:
        return Threads(slurm, SLURM)
    own = f"{len(cores)} core{'s' * (len(cores) > 1)}"
    return Threads(share, f"{own} of its own" if sharing == 1 else f"{own} for {sharing} ranks")


def _number(text: str) -> int:
    """A positive whole number; 0 for anything else."""
    return int(text) if text.strip().isdecimal() else 0
