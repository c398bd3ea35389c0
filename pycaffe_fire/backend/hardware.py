"""What a run ran on: machine, processor, memory and versions, for comparing runs."""

from __future__ import annotations

import os
import platform
import socket
import sys

from ..version import VERSION
from . import available_cores
from .host import processor

LIBRARIES = ("numpy", "numba", "google.protobuf", "cupy", "mpi4py")


def hardware() -> dict[str, str | int]:
    """Of this host."""
    return {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "processor": processor(),
        "cores": available_cores(),
        "memory_bytes": _memory(),
    }


def versions() -> dict[str, str]:
    """Of this package, Python, and the libraries in use whose numbers matter."""
    found = {"pycaffe_fire": VERSION, "python": platform.python_version()}
    for name in LIBRARIES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            found[name.rpartition(".")[2]] = str(version)
    return found


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0
