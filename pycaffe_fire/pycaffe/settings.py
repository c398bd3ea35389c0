"""pycaffe's process-wide settings: device, seed, solvers that train together, Python layers."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from ..backend import cpu_backend
from ..backend.base import Backend
from ..backend.choice import gpu_backend
from ..errors import BackendError, SolverError
from ..layers import Context
from ..solver.run import fresh_seed

log = logging.getLogger("pycaffe_fire")


@dataclass
class Settings:
    seed: int | None = None
    gpu: bool = False
    device: int | None = None
    solver_count: int = 1
    solver_rank: int = 0
    multiprocess: bool = False
    python_modules: bool = False
    output_folder: str = ""


_settings = Settings()


def set_mode_cpu() -> None:
    """New nets run on the CPU (they do by default)."""
    _settings.gpu = False


def set_mode_gpu() -> None:
    """New nets run on the GPU; where none works, on the CPU, with a warning that says why."""
    try:
        gpu_backend(_settings.device)
    except BackendError as error:
        log.warning("set_mode_gpu: computing on the CPU instead: %s", error)
        _settings.gpu = False
    else:
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
    return _settings.seed if _settings.seed is not None else fresh_seed()


def allow_python_layers(allowed: bool = True) -> None:
    """Let prototxts of this process import the modules that their Python layers name."""
    _settings.python_modules = allowed


def python_modules_allowed() -> bool:
    return _settings.python_modules


def allow_output(folder: str) -> None:
    """Let nets of this process write to this folder, besides the working directory."""
    _settings.output_folder = folder


def allowed_output() -> str:
    return _settings.output_folder


def new_context() -> Context:
    """The context of a net that a script makes."""
    return Context(
        seed_for(), python_modules=_settings.python_modules, output_folder=_settings.output_folder
    )


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
        gpu_backend(_settings.device).wait()
