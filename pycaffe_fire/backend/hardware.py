"""What a run ran on: machine, processor, memory and versions, for comparing runs."""

from __future__ import annotations

import os
import platform
import socket
import sys
from pathlib import Path

from ..version import VERSION
from . import available_cores

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


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 0
