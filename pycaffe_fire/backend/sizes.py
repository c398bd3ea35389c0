"""Sizes of memory and files: as people read them, and compared with what this host has."""

from __future__ import annotations

from . import host

SMALL = 1 << 30  # bytes that are not worth a look at what is free


def mebibytes(size: int) -> str:
    """`1.5 GiB`, `12.3 MiB`"""
    if size >= 10 * 2**30:
        return f"{size / 2**30:,.0f} GiB"
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"


def memory_shortage(size: int) -> str:
    """Why `size` bytes cannot be allocated on this host, as a predicate; empty if they can."""
    free = None if size < SMALL else host.free_bytes()
    if free is None or size <= free:
        return ""
    return f"needs {mebibytes(size)} of memory, but this machine has {mebibytes(free)} free"
