"""How a rank that cannot go on ends its whole job, after its last words were heard.

A launcher of MPICH's kind ends the other ranks when it is asked to, or when a rank's connection to
it ends before the rank. A process that merely exits may be collected before its connection is
looked at: then nobody is ended, and the others wait for ever. That is also all that MPICH's
MPI_Abort does with any communicator but the world.
"""

from __future__ import annotations

import array
import contextlib
import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import NoReturn

PMI_VARIABLE = "PMI_FD"  # the connection to a launcher of MPICH's kind
LAST_RESORT = 5  # seconds that MPI has to end a job, and a launcher to end a rank
HEARING = 2.0  # seconds that a launcher has to read what ranks have written
_LOOK = 0.001  # seconds between two looks


def abort() -> NoReturn:
    """End all ranks of the job at once, by MPI."""
    from mpi4py import MPI

    wait_until_heard()
    if hasattr(signal, "alarm"):  # MPI may wait for hosts that cannot be reached
        signal.alarm(LAST_RESORT)
    MPI.COMM_WORLD.Abort(1)
    hang_up()  # it may return before the launcher has ended this process


def hang_up() -> NoReturn:
    """End all ranks of the job at once where MPI cannot be called: the launcher sees the lost
    connection while this process is still there."""
    wait_until_heard()
    connection = os.environ.get(PMI_VARIABLE, "")
    if connection.isdecimal():
        with contextlib.suppress(OSError):
            os.close(int(connection))
            time.sleep(LAST_RESORT)
    os._exit(1)


def wait_until_heard() -> None:
    """Wait until the launcher has read what this process has written: when it is told of the end
    before that, it may not look any more."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    until = time.monotonic() + HEARING
    while any(map(_unread, (1, 2))) and time.monotonic() < until:
        time.sleep(_LOOK)


def _unread(descriptor: int) -> int:
    """Bytes in a pipe; 0 where it is none, or nothing can be said."""
    try:
        import fcntl
        import termios

        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return 0
        count = array.array("i", [0])
        fcntl.ioctl(descriptor, termios.FIONREAD, count)
    except (ImportError, OSError):
        return 0
    return count[0]


@contextmanager
def ending_after(seconds: float, reason: str) -> Iterator[None]:
    """What runs inside may wait for others where no deadline can be given: this process ends."""

    def end() -> None:
        print(reason, file=sys.stderr, flush=True)
        hang_up()

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
