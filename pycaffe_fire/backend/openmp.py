"""Waiting threads of libgomp, the OpenMP library of oneDNN and of the compiled kernels.

libgomp reads its settings from the environment once, when it is loaded.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

log = logging.getLogger("pycaffe_fire")

LIBGOMP = "libgomp.so.1"
SPIN_COUNT, WAIT_POLICY = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY"
# How often a waiting thread looks for work before it sleeps. libgomp's own 300,000 is right only
# where every thread has a core to itself: on a busy machine the waiting threads keep the cores from
# the threads that they wait for. Chosen with tools/bench/spin.py: 3,000 already costs time on a
# quiet machine, and 10,000 costs more on a busy one.
SPINS = 5_000


@contextmanager
def bounded_spin() -> Iterator[None]:
    """Context manager: a libgomp that is loaded inside lets waiting threads spin SPINS times.

    A user who has set GOMP_SPINCOUNT or OMP_WAIT_POLICY keeps that choice. The environment is
    restored at the end, so that programs started later do not inherit the setting.
    """
    if SPIN_COUNT in os.environ or WAIT_POLICY in os.environ:
        yield
        return
    _report_earlier_libgomp()
    os.environ[SPIN_COUNT] = str(SPINS)
    try:
        yield
    finally:
        os.environ.pop(SPIN_COUNT, None)


@cache
def _report_earlier_libgomp() -> None:
    """Log that another module loaded libgomp, if one did before our first library was loaded."""
    if _is_loaded():
        log.debug(
            "%s was loaded before pycaffe_fire needed it, so its waiting threads spin as long as "
            "its own settings say; start Python with %s=%d to bound that on a busy machine",
            LIBGOMP, SPIN_COUNT, SPINS,
        )  # fmt: skip


def _is_loaded() -> bool:
    """True if this process has loaded libgomp."""
    if sys.platform != "linux":
        return False
    try:
        ctypes.CDLL(LIBGOMP, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True
