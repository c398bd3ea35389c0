"""Where arithmetic lives: tensors, planned ops, and one folder per kind of hardware."""

from __future__ import annotations

import logging
import os
from functools import cache

from ..errors import BackendError
from .base import Backend
from .compiled import available
from .cpu import library as native
from .numpy import NumPyBackend

log = logging.getLogger("pycaffe_fire")


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def _cpu_kind() -> type[Backend]:
    from .onednn import OneDNNBackend, library

    try:
        library()
    except BackendError as error:
        if not available() or not native.available():
            log.warning("Running on the slower NumPy ops: %s", error)
            return NumPyBackend
        from .blas import BlasBackend

        log.warning("Running on NumPy's BLAS, which is slower than oneDNN: %s", error)
        return BlasBackend
    return OneDNNBackend


def cpu_backend(threads: int | None = None) -> Backend:
    """The best CPU backend this machine can load, on `threads` threads (default: all cores)."""
    return _cpu_kind()(threads or available_cores())
