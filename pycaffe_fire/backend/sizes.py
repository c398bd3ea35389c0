"""Sizes of memory and files, as people read them."""

from __future__ import annotations


def mebibytes(size: int) -> str:
    """`1.5 GiB`, `12.3 MiB`"""
    if size >= 10 * 2**30:
        return f"{size / 2**30:,.0f} GiB"
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.1f} MiB"
