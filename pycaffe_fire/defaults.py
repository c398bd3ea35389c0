"""pycaffe's process-wide settings: which device new nets use, and their random seed."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass

from .backend import cpu_backend
from .backend.base import Backend

log = logging.getLogger("pycaffe_fire")


@dataclass
class Settings:
    seed: int | None = None


_settings = Settings()


def set_mode_cpu() -> None:
    """New nets run on the CPU (they do by default)."""


def set_mode_gpu() -> None:
    """Asks for the GPU; this version has no GPU backend, so nets stay on the CPU and say so."""
    log.warning("no GPU backend in this version: running on the CPU")


def set_random_seed(seed: int) -> None:
    """Seed of nets and solvers made from now on (a solver's own random_seed goes first)."""
    _settings.seed = seed


def seed_for(random_seed: int = -1) -> int:
    """The seed to use: the one given, else the process-wide one, else a fresh one."""
    if random_seed >= 0:
        return random_seed
    return _settings.seed if _settings.seed is not None else secrets.randbits(31)


def default_backend() -> Backend:
    return cpu_backend()
