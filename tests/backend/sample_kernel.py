"""A kernel that numba compiles, for tests of compiling and of the cache."""

from __future__ import annotations

from typing import Any

from pycaffe_fire.backend.compiled import fast_kernel


@fast_kernel("f4[::1], f4[::1]")
def add_into(total: Any, part: Any) -> None:
    """total += part"""
    for i in range(total.size):
        total[i] += part[i]
