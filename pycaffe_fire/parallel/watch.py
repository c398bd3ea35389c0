"""Signs of life while a job runs, however it was started.

`fire_train -n` watches the ranks it started. Those that mpiexec or srun started watch each other:
rank 0 all the others, and rank 1 rank 0; beside each stands a guardian that names it if it is
killed. A rank whose launcher is gone ends.
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
from .guardian import Guardian, first_to_fail
from .hosts import place
from .monitor import ADDRESS_VARIABLE, DIED, SILENCE, UNREACHABLE, Monitor, Reporter
from .signed import SECRET_VARIABLE, new_secret

log = logging.getLogger("pycaffe_fire")

POLL = 0.5  # seconds


@contextmanager
def watched(communicator: Communicator, what: str) -> Iterator[None]:
    """While this runs, a rank that dies or hangs ends the job, with a message that names it."""
    if communicator.size == 1:
        yield
        return
    done = threading.Event()
    _start(_end_with_the_launcher, communicator, what, done)
    watching = _watched_by_launcher if os.environ.get(ADDRESS_VARIABLE) else _watching_each_other
    try:
        with watching(communicator, what):
            yield
            communicator.set_status("ending")
            communicator.gather(None)  # who ends later than others is watched until then
    finally:
        done.set()


def _start(target: object, *arguments: object) -> None:
    threading.Thread(target=target, args=arguments, name="watch", daemon=True).start()  # type: ignore[arg-type]


def _end(communicator: Communicator, what: str, reason: str) -> None:
    """End this rank and, if MPI can still do that, the job."""
    print(f"{what}: rank {communicator.rank}: {reason}", file=sys.stderr, flush=True)
    communicator.abort()


def _end_with_the_launcher(communicator: Communicator, what: str, done: threading.Event) -> None:
    """A launcher that was killed cannot end the ranks: they notice that they were adopted."""
    parent = os.getppid()
    while not done.wait(POLL):
        if os.getppid() != parent:
            _end(communicator, what, "the process that started it is gone, so it ends")


@contextmanager
def _watched_by_launcher(communicator: Communicator, what: str) -> Iterator[None]:
    address, secret = os.environ[ADDRESS_VARIABLE], os.environ.get(SECRET_VARIABLE, "")
    reporter = Reporter(
        communicator.rank, lambda: communicator.doing, address, secret,
        lambda cut_off: _end(communicator, what, f"fire_train -n {_how(cut_off)}, so it ends"),
    )  # fmt: skip
    if not reporter.connected:
        log.warning("rank %d is not watched: it cannot reach %s", communicator.rank, address)
    yield
    reporter.close()


def _how(cut_off: bool) -> str:
    return f"cannot be reached for {UNREACHABLE:.0f} s" if cut_off else "is gone"


@contextmanager
def _watching_each_other(communicator: Communicator, what: str) -> Iterator[None]:
    rank = communicator.rank
    secret = communicator.broadcast(new_secret())
    local = len(set(communicator.gather(place()))) == 1
    monitor = Monitor(secret, local) if rank < 2 else None
    addresses = communicator.gather(monitor.address if monitor is not None else "")
    guardian = Guardian(rank, what, communicator.job)

    def doing() -> str:
        guardian.tell(communicator.doing)
        return communicator.doing

    def on_loss(cut_off: bool) -> None:
        if cut_off:  # of one that is merely gone, others tell
            guardian.close()
            _end(communicator, what, f"rank {watcher} {_how(cut_off)}, so it ends")

    watcher = 1 if rank == 0 else 0
    reporter = Reporter(rank, doing, addresses[watcher], secret, on_loss)
    guarded = all(communicator.gather(guardian.present))
    apart = communicator.gather(reporter.connected).count(False)
    if apart and rank == 0:
        log.warning("%d ranks are not watched: they cannot reach each other by TCP", apart)
    done = threading.Event()
    if monitor is not None:
        _start(_watch, monitor, reporter, guardian, communicator, what, guarded, done)
    try:
        yield
        guardian.close()
        reporter.close()
    except BaseException:
        guardian.close()
        reporter.fail()  # this rank names itself
        raise
    finally:
        done.set()
        if monitor is not None:
            monitor.close()


def _watch(
    monitor: Monitor, reporter: Reporter, guardian: Guardian, communicator: Communicator, what: str,
    guarded: bool, done: threading.Event,
) -> None:  # fmt: skip
    """Until a rank is lost: then say so, unless it or its guardian did, and end the job, unless
    it does."""
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
    died = failure.how == DIED
    if not failure.told and not (died and guarded):
        print(f"{what}: {failure}", file=sys.stderr, flush=True)
    reporter.close()  # its end is not to be reported as a failure
    if not failure.told:
        if died and guarded:
            time.sleep(POLL)  # its guardian speaks
        first_to_fail(communicator.job)  # what ends from now on is not to be told
        guardian.close()
        communicator.abort()
