"""This machine: its processor, how much memory it still has for us, and how much of it we have."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
ISA_LIMITS = "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"  # variables that oneDNN reads


def processor() -> str:
    """Its name."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def has_avx512() -> bool:
    """Has it vectors of 16 numbers, and may oneDNN use them?"""
    limit = next((os.environ[name] for name in ISA_LIMITS if name in os.environ), "all").upper()
    if not limit.startswith(("AVX512", "AVX10", "ALL", "DEFAULT")):
        return False
    lines = _read("/proc/cpuinfo").splitlines()
    return "avx512f" in next((line for line in lines if line.startswith("flags")), "").split()


def free_bytes() -> int | None:
    """What can still be had, of the machine and within limits set for us; None if unknown."""
    sizes = (_machine_bytes(), _cgroup_bytes(), *_process_bytes())
    known = [size for size in sizes if size is not None]
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


def _process_bytes() -> Iterator[int]:
    """What `ulimit` leaves to this process: of addresses (-v) and of data (-d)."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    lines = _read("/proc/self/status").splitlines()
    used = dict(line.split(":", 1) for line in lines if line.startswith("Vm"))
    for kind, field in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, _ = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            yield max(0, most - 1024 * int(used.get(field, "0").split()[0]))


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
