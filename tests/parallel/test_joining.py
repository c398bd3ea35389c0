"""How a process finds out whether it is alone: what launchers leave in its environment."""

from __future__ import annotations

import subprocess
import sys
import types
from typing import Any

import pytest

from pycaffe_fire.errors import SolverError
from pycaffe_fire.parallel import job
from pycaffe_fire.parallel.communicator import SerialCommunicator
from pycaffe_fire.parallel.job import SIZE_VARIABLES, join, ranks_started

# What Slurm sets in the shell of an allocation, and in a step of srun.
ALLOCATION = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_PROCID": "0"}
STEP = {**ALLOCATION, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1"}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith((*job.PMI_PREFIXES, "SLURM_")) or name in SIZE_VARIABLES:
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({}, 1),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, 4),
        ({"OMPI_COMM_WORLD_SIZE": "3"}, 3),
        (ALLOCATION, 1),
        ({**ALLOCATION, "SLURM_STEP_NUM_TASKS": "1"}, 1),
        ({**STEP, "PMI_RANK": "1", "PMI_SIZE": "4"}, 4),
        ({**STEP, "PMIX_RANK": "1", "PMIX_NAMESPACE": "slurm.pmix.7.0"}, 4),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "1", "PMIX_RANK": "0"}, 1),
    ],
    ids=["alone", "mpich", "open mpi", "salloc", "interactive step", "srun pmi2", "srun pmix",
         "srun -n 1"],
)  # fmt: skip
def test_ranks_that_were_started(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], ranks: int
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ranks_started() == ranks


def test_a_process_in_an_allocation_is_alone_and_needs_no_mpi() -> None:
    program = (
        f"import os, sys; os.environ.update({ALLOCATION!r})\n"
        "from pycaffe_fire.parallel.job import join\n"
        "print(join('nccl').describe(), 'mpi4py' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "one process False\n", done.stderr


def test_tasks_without_pmi_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SolverError, match="srun started 4 tasks.*srun --mpi=pmi2"):
        join()


def test_a_launcher_of_another_mpi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world = types.SimpleNamespace(Get_size=lambda: 1)
    library: Any = types.ModuleType("mpi4py")
    library.MPI = types.SimpleNamespace(
        COMM_WORLD=world, Get_library_version=lambda: "MPICH Version: 5.0\n"
    )
    monkeypatch.setitem(sys.modules, "mpi4py", library)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    with pytest.raises(SolverError, match=r"4 ranks were started, but MPI sees 1.*MPICH Version"):
        join()


def test_unknown_names_are_errors_even_alone() -> None:
    assert isinstance(join(), SerialCommunicator)
    with pytest.raises(SolverError, match='"halfing".*did you mean "halving".*auto, halving.*nccl'):
        join("halfing")
    with pytest.raises(SolverError, match='unknown gradient precision "bf16"'):
        join("halving", "bf16")
