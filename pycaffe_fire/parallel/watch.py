"""Signs of life while a job runs, however it was started.

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
        if address and not reporter.connected:
            log.warning("rank %d is not watched: it cannot reach %s", communicator.rank, address)
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
    apart = communicator.gather(reporter.connected).count(False)
    if apart and rank == 0:
        log.warning("%d ranks are not watched: they cannot reach each other by TCP", apart)
    done = threading.Event()
    if monitor is not None:
        watch = (monitor, reporter, communicator, what, done)
        threading.Thread(target=_watch, args=watch, name="watch", daemon=True).start()
    try:
        yield
        reporter.close()
    except Exception:
        reporter.fail()  # this rank names itself
        raise
    finally:
        done.set()
        if monitor is not None:
            monitor.close()


def _watch(
    monitor: Monitor, reporter: Reporter, communicator: Communicator, what: str,
    done: threading.Event,
) -> None:  # fmt: skip
    """Until a rank is lost: then say so, unless it did, and end the job, unless it does."""
    looked = time.monotonic()
    failure = None
    while failure is None and not done.is_set():
        monitor.heard.wait(POLL)  # a launcher that hears of a death kills the others at once
        now = time.monotonic()
        if now - looked > SILENCE / 3:  # it was this rank that slept, perhaps with all the others
            monitor.forgive()
        looked = now
        failure = monitor.failure()
    if failure is None or done.is_set():
        return
    if not failure.told:
        print(f"{what}: {failure}", file=sys.stderr, flush=True)
    reporter.close()  # its end is not to be reported as a failure
    if not failure.told:
        communicator.abort()
