"""Starting a bench as the ranks of an MPI job: on this machine, or on emulated hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pycaffe_fire.backend import available_cores
from pycaffe_fire.parallel.launch import find_mpiexec

NETLAB = Path(__file__).parents[1] / "netlab" / "netlab.py"
# More ranks than cores: yield instead of spinning.
CROWDED = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "10"}


def run_ranks(
    script: str, ranks: int, arguments: Sequence[str], threads: int = 1, capture: bool = False
) -> subprocess.CompletedProcess[str]:
    """A script as the ranks of a job on this machine."""
    crowded = CROWDED if ranks * threads > available_cores() else {}
    return subprocess.run(
        [find_mpiexec(), "-n", str(ranks), sys.executable, script, *arguments],
        env={**os.environ, **crowded, "OMP_NUM_THREADS": str(threads)},
        text=True,
        stdout=subprocess.PIPE if capture else None,
    )


def run_hosts(
    script: str, hosts: int, mbit: float, arguments: Sequence[str], per_host: int = 1
) -> int:
    """A script as the ranks of a job on emulated hosts; needs root."""
    lab = [sys.executable, str(NETLAB), "run", "--hosts", str(hosts), "--mbit", f"{mbit:g}"]
    lab += ["-n", str(hosts * per_host), "--place", "blocks", "--"]
    return subprocess.run([*lab, sys.executable, script, *arguments]).returncode
