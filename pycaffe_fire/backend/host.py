"""This machine: its processor, how much memory it still has for us, and how much of it we have."""

from __future__ import annotations

import os
import platform
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def processor() -> str:
    """Its name."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def free_bytes() -> int | None:
    """What can still be had, of the machine and within limits set for us; None if unknown."""
    known = [size for size in (_machine_bytes(), _cgroup_bytes()) if size is not None]
    return min(known, default=None)


def resident_bytes() -> int:
    """What this process has in memory now; 0 if nobody knows."""
    pages = _read("/proc/self/statm").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else 0


def _machine_bytes() -> int | None:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return 1024 * int(line.split()[1])
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def _cgroup_bytes() -> int | None:
    """What a container or a batch system has set, less what is in use and cannot be dropped."""
    for folder, limit, used in (
        (CGROUPS, "memory.max", "memory.current"),
        (CGROUPS / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        most, now = _read(folder / limit).strip(), _read(folder / used).strip()
        if most.isdecimal() and now.isdecimal():
            stat = dict(line.split()[:2] for line in _read(folder / "memory.stat").splitlines())
            droppable = int(stat.get("file", stat.get("cache", 0)))
            return max(0, int(most) - int(now) + droppable)
    return None


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
