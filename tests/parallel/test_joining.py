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


CLEARED = {*SIZE_VARIABLES, job.TORCH_SIZE, job.TORCH_RANK}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith((*job.PMI_PREFIXES, "SLURM_")) or name in CLEARED:
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
    use_library(monkeypatch, "Some MPI 1.0", ranks=1)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    with pytest.raises(SolverError, match=r"4 ranks were started, but MPI sees 1.*Some MPI 1.0"):
        join()


def use_library(monkeypatch: pytest.MonkeyPatch, version: str, ranks: int | None = None) -> None:
    """An MPI library of this version; starting it is a failure unless it sees some ranks."""
    library: Any = types.ModuleType("mpi4py")
    library.rc = types.SimpleNamespace()
    library.MPI = types.SimpleNamespace(
        Get_library_version=lambda: version,
        Is_initialized=lambda: False,
        Init_thread=lambda: None if ranks else pytest.fail("aborts where it does not fit"),
        COMM_WORLD=types.SimpleNamespace(Get_size=lambda: ranks),
    )
    monkeypatch.setitem(sys.modules, "mpi4py", library)


MPICH = "MPICH Version:      5.0.2\nMPICH configure:    --with-device=ch4:ucx,ofi"
OPEN_MPI = "Open MPI v5.0.11, package: Open MPI"


@pytest.mark.parametrize(
    ("library", "environment", "message"),
    [
        (MPICH, {"OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "0"},
         r"Open MPI's mpiexec started 4 ranks.*MPICH Version: +5.0.2\); say fire_train -n 4"),
        (OPEN_MPI, {"PMI_RANK": "0", "PMI_SIZE": "4"},
         r"mpiexec of MPICH's family started 4 ranks.*Open MPI v5.*; say fire_train -n 4"),
        (MPICH, {**STEP, "PMIX_RANK": "0", "SLURM_MPI_TYPE": "pmix"},
         r"srun --mpi=pmix started 4 ranks.*MPICH.*; say srun --mpi=pmi2"),
    ],
    ids=["mpich under open mpi", "open mpi under mpich", "mpich under pmix"],
)  # fmt: skip
def test_libraries_that_do_not_fit_the_launcher_are_not_started(
    monkeypatch: pytest.MonkeyPatch, library: str, environment: dict[str, str], message: str
) -> None:
    use_library(monkeypatch, library)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SolverError, match=message):
        join()


@pytest.mark.parametrize(
    ("library", "environment"),
    [
        (f"{MPICH} --with-pmix=/usr", {**STEP, "PMIX_RANK": "0", "SLURM_MPI_TYPE": "pmix_v4"}),
        (MPICH, {**STEP, "PMI_RANK": "0", "PMI_SIZE": "4", "SLURM_MPI_TYPE": "pmi2"}),
        (OPEN_MPI, {**STEP, "PMI_RANK": "0", "PMI_SIZE": "4", "SLURM_MPI_TYPE": "pmi2"}),
        (OPEN_MPI, {"OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "0"}),
    ],
)
def test_libraries_that_may_fit_are_started(
    monkeypatch: pytest.MonkeyPatch, library: str, environment: dict[str, str]
) -> None:
    use_library(monkeypatch, library, ranks=4)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert job.world().Get_size() == 4


def test_workers_of_torchrun_are_refused_with_the_right_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SolverError, match=r"WORLD_SIZE=4.*fire_train -n 4 once"):
        join()
    monkeypatch.setenv("PMI_SIZE", "2")  # an MPI launcher has the last word
    assert ranks_started() == 2


def test_unknown_names_are_errors_even_alone() -> None:
    assert isinstance(join(), SerialCommunicator)
    with pytest.raises(SolverError, match='"halfing".*did you mean "halving".*auto, halving.*nccl'):
        join("halfing")
    with pytest.raises(SolverError, match='unknown gradient precision "bf16"'):
        join("halving", "bf16")
