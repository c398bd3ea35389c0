"""pycaffe's process-wide settings: which device new nets use, and their random seed."""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import dataclass
from functools import cache

from .backend import cpu_backend
from .backend.base import Backend
from .backend.cuda.device import probe
from .errors import BackendError, SolverError

log = logging.getLogger("pycaffe_fire")

# What launchers tell a process about its place on its own host.
LOCAL_RANKS = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


@dataclass
class Settings:
    seed: int | None = None
    gpu: bool = False
    device: int | None = None
    solver_count: int = 1
    solver_rank: int = 0
    multiprocess: bool = False


_settings = Settings()


def set_mode_cpu() -> None:
    """New nets run on the CPU (they do by default)."""
    _settings.gpu = False


def set_mode_gpu() -> None:
    """New nets run on the GPU; raises a BackendError with the reason where none works."""
    gpu_backend(_settings.device)
    _settings.gpu = True


def set_device(device: int) -> None:
    """The GPU that set_mode_gpu means."""
    _settings.device = device


def set_random_seed(seed: int) -> None:
    """Seed of nets and solvers made from now on (a solver's own random_seed goes first)."""
    _settings.seed = seed


def seed_for(random_seed: int = -1) -> int:
    """The seed to use: the one given, else the process-wide one, else a fresh one."""
    if random_seed >= 0:
        return random_seed
    return _settings.seed if _settings.seed is not None else secrets.randbits(31)


def solver_count() -> int:
    """How many solvers train together, one in every process."""
    return _settings.solver_count


def set_solver_count(count: int) -> None:
    """Solvers made from now on train together with those of the other processes of an MPI job."""
    if count < 1:
        raise SolverError(f"set_solver_count takes a number of at least 1, got {count}")
    _settings.solver_count = count


def solver_rank() -> int:
    """Which of them this process is."""
    return _settings.solver_rank


def set_solver_rank(rank: int) -> None:
    if rank < 0:
        raise SolverError(f"set_solver_rank takes a number of at least 0, got {rank}")
    _settings.solver_rank = rank


def multiprocess() -> bool:
    return _settings.multiprocess


def set_multiprocess(multiprocess: bool) -> None:
    """Solvers that train together are always in processes of their own here."""
    _settings.multiprocess = multiprocess


def default_backend(threads: int | None = None) -> Backend:
    return gpu_backend(_settings.device) if _settings.gpu else cpu_backend(threads)


def wait_for_device() -> None:
    """Until all that was asked of the GPU is done; at once on the CPU."""
    if _settings.gpu:
        backend = gpu_backend(_settings.device)
        float(backend.total(backend.empty(1)))  # a number can be looked at when all before it is


def local_rank() -> int:
    """Which of the processes on this host we are."""
    return next((int(os.environ[name]) for name in LOCAL_RANKS if name in os.environ), 0)


def gpu_backend(device: int | None = None, cudnn: bool = False) -> Backend:
    """This device, or the one that falls to this process; nets of a process share it."""
    return _gpu_backend(_own_device() if device is None else device, cudnn)


@cache
def _gpu_backend(device: int, cudnn: bool) -> Backend:
    from .backend.cuda import CudaBackend

    return CudaBackend(device, cudnn)


def _own_device() -> int:
    """Processes on one host take its devices in turn."""
    found = probe()
    return local_rank() % found.devices if found.devices else 0


def choose_backend(
    gpu: str | None,
    threads: int | None = None,
    level: int = logging.WARNING,
    cudnn: bool = False,
) -> Backend:
    """What `--gpu` says: nothing is the CPU; a device, several ("0,2": one for each process on
    this host) or "all"; "auto" is a GPU where one works, and the CPU otherwise, which is said
    at this log level."""  # fmt: skip
    if gpu is None:
        if cudnn:
            raise BackendError("--cudnn needs a GPU: say which, as in --gpu 0")
        return cpu_backend(threads)
    if gpu == "auto":
        found = probe()
        if found.cupy is None:
            log.log(level, "Running on the CPU: %s", found.reason)
            return cpu_backend(threads)
        return gpu_backend(cudnn=cudnn)
    if gpu == "all":
        return gpu_backend(cudnn=cudnn)
    return gpu_backend(_listed_device(gpu), cudnn)


def _listed_device(gpu: str) -> int:
    if not all(part.isdecimal() for part in gpu.split(",")):
        raise BackendError(f'--gpu takes device numbers, "all" or "auto", got "{gpu}"')
    devices, rank = [int(part) for part in gpu.split(",")], local_rank()
    if rank >= len(devices):
        raise BackendError(
            f"--gpu {gpu} names {len(devices)} device(s), but process {rank} of this host needs "
            f"one too; start one process per device"
        )
    return devices[rank]
