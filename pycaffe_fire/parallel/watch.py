"""Signs of life while a job runs, whoever started it.

`fire_train -n` watches the ranks it started. Those that mpiexec or srun started watch each other:
rank 0 all the others, and rank 1 rank 0.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from .communicator import Communicator
from .monitor import ADDRESS_VARIABLE, SILENCE, Monitor, Reporter

log = logging.getLogger("pycaffe_fire")

POLL = 0.5  # seconds


@contextmanager
def watched(communicator: Communicator, what: str) -> Iterator[None]:
    """While this runs, a rank that dies or hangs ends the job, with a message that names it."""
    address = os.environ.get(ADDRESS_VARIABLE, "")
    if communicator.size == 1 or address:
        reporter = Reporter(communicator.rank, lambda: communicator.doing, address)
        yield
        reporter.close()
    else:
        with _watching_each_other(communicator, what):
            yield


@contextmanager
def _watching_each_other(communicator: Communicator, what: str) -> Iterator[None]:
    rank = communicator.rank
    monitor = Monitor() if rank < 2 else None
    addresses = communicator.gather(monitor.address if monitor is not None else "")
    reporter = Reporter(rank, lambda: communicator.doing, addresses[1 if rank == 0 else 0])
    silent = communicator.gather(reporter.connected).count(False)
    if silent and rank == 0:
        log.warning("%d ranks cannot be watched: they do not reach rank 0 by TCP", silent)
    done = threading.Event()
    if monitor is not None:
        watch = (monitor, communicator, what, done)
        threading.Thread(target=_watch, args=watch, name="watch", daemon=True).start()
    try:
        yield
    finally:  # a rank that fails says so itself
        reporter.close()
        done.set()
        if monitor is not None:
            monitor.close()


def _watch(monitor: Monitor, communicator: Communicator, what: str, done: threading.Event) -> None:
    looked = time.monotonic()
    while not done.is_set():
        monitor.heard.wait(POLL)  # a launcher that hears of a death kills the others at once
        now = time.monotonic()
        if now - looked > SILENCE / 3:  # it was this rank that slept, perhaps with all the others
            monitor.forgive()
        looked = now
        failure = monitor.failure()
        if failure is not None and not done.is_set():
            print(f"{what}: {failure}", file=sys.stderr, flush=True)
            communicator.abort()
