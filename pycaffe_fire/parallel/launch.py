"""`fire_train -n P`: start the ranks, watch them, and start again with those that are left."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ..backend import available_cores
from ..errors import SolverError
from ..installation import install_hint
from .hosts import own_addresses
from .monitor import ADDRESS_VARIABLE, Failure, Monitor
from .placement import Host, Layout
from .signed import SECRET_VARIABLE, new_secret

POLL = 0.2  # seconds
STOPPED = 75  # exit status of a run that was asked to stop, did, and can go on: EX_TEMPFAIL
INTERRUPTED = 130  # what shells call a process that Ctrl-C ended
PASSED_ON = ("SIGINT", "SIGHUP", "SIGTERM", "SIGUSR1", "SIGUSR2")
GRACE = 5.0  # seconds between asking a failed job to end and ending it
TRIAL = 20.0  # seconds for a host to show that ranks can be started on it
# Tells ranks that what they write to standard error ends at a terminal, and how wide that is.
TERMINAL_VARIABLE = "PYCAFFE_FIRE_TERMINAL"
ERASE_LINE, SHOW_CURSOR = "\r\x1b[2K", "\x1b[?25h"


def find_mpiexec() -> str:
    """The launcher of the environment we run in, or the system's."""
    beside = os.path.join(sysconfig.get_path("scripts"), "mpiexec")
    found = beside if os.access(beside, os.X_OK) else shutil.which("mpiexec")
    if not found:
        raise SolverError(
            "several ranks need MPI, and there is no mpiexec; install one with "
            f"{install_hint('mpi')}, or use the system's MPI and pip install mpi4py"
        )
    return found


def _is_open_mpi(mpiexec: str) -> bool:
    said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True)
    return any(name in said.stdout for name in ("Open MPI", "OpenRTE", "PRRTE"))


def host_arguments(placed: Sequence[Host], open_mpi: bool) -> list[str]:
    """How mpiexec is told which hosts run how many ranks, in blocks: MPICH's family or Open MPI."""
    if not placed:
        return []
    listed = ",".join(f"{host.name}:{host.slots}" for host in placed)
    return ["--host", listed, "--map-by", "slot"] if open_mpi else ["-hosts", listed]


@dataclass(frozen=True)
class Ended:
    """How an attempt ended: its status, the rank that was lost, and those that had gone silent."""

    status: int
    failure: Failure | None
    silent: Collection[int] = ()


class Job:
    """One attempt: ranks running a Python module with its arguments."""

    def __init__(self, layout: Layout, module: str, arguments: Sequence[str]) -> None:
        ranks, placed = layout.ranks, layout.placed
        secret = new_secret()
        self._monitor = Monitor(secret, local=all(_is_here(host.name) for host in placed))
        environment = {
            **os.environ, ADDRESS_VARIABLE: self._monitor.address, SECRET_VARIABLE: secret
        }  # fmt: skip
        self._terminal = sys.stderr.isatty()
        if self._terminal:
            environment[TERMINAL_VARIABLE] = str(os.get_terminal_size(sys.stderr.fileno()).columns)
        if ranks > available_cores():  # more ranks than cores: yield instead of spinning
            environment.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")
            environment.setdefault("MPIR_CVAR_POLLS_BEFORE_YIELD", "10")
        mpiexec = find_mpiexec()
        command = [mpiexec, "-n", str(ranks)]
        if placed:
            command += host_arguments(placed, _is_open_mpi(mpiexec))
        command += [sys.executable, "-m", module, *arguments]
        self._process = subprocess.Popen(
            _ending_with_parent(command),
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait(self) -> Ended:
        """Until all ranks have ended, or had to because one was lost."""
        try:
            while self._process.poll() is None:
                failure = self._monitor.failure()
                if failure:
                    silent = self._monitor.silent_ranks()
                    time.sleep(2 * POLL)  # let MPI finish on its own where it can
                    self._end()
                    return Ended(self._process.returncode or 1, failure, silent)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(POLL)
            return Ended(self._process.returncode, self._monitor.failure())
        finally:
            self._monitor.close()
            if self._terminal:  # a rank that was ended in the middle of a line tidies up nothing
                print(ERASE_LINE + SHOW_CURSOR, end="", file=sys.stderr, flush=True)

    def send(self, number: int) -> bool:
        """Send the ranks a signal; false if it cannot reach them.

        One rank asks for the others, too. Where none on this host is known, mpiexec tells all of
        them, except of signals that would end it; Open MPI's gives them a second after SIGTERM.
        """
        local = self._monitor.local_ranks() if number != signal.SIGINT else []
        for pid in [pid for pid in local if _descends(pid, self._process.pid)][:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                return True
        if number not in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            return False
        self._process.send_signal(number)
        return True

    def _end(self) -> None:
        """End the launcher and every process it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                break
            os.killpg(self._process.pid, number)
            try:
                self._process.wait(GRACE)
            except subprocess.TimeoutExpired:
                continue
        # Ranks may be in sessions of their own; hung ones never hear of the launcher's end.
        for pid in _descendants(self._process.pid):
            os.kill(pid, signal.SIGKILL)


def _is_here(host: str) -> bool:
    return host in ("localhost", "127.0.0.1", socket.gethostname(), *own_addresses())


def unreachable(hosts: Sequence[str]) -> list[str]:
    """Those of the hosts on which mpiexec cannot start a Python that does nothing, in time."""
    mpiexec = find_mpiexec()
    open_mpi = _is_open_mpi(mpiexec)
    trials = {}
    for host in hosts:
        if not _is_here(host):
            where = host_arguments([Host(host, 1)], open_mpi)
            trials[host] = subprocess.Popen(
                [mpiexec, "-n", "1", *where, sys.executable, "-I", "-S", "-c", ""],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
    deadline = time.monotonic() + TRIAL
    return [host for host, trial in trials.items() if not _succeeds(trial, deadline)]


def _succeeds(trial: subprocess.Popen[bytes], deadline: float) -> bool:
    try:
        return trial.wait(max(0.0, deadline - time.monotonic())) == 0
    except subprocess.TimeoutExpired:
        os.killpg(trial.pid, signal.SIGKILL)
        trial.wait()
        return False


# Runs a command that gets SIGTERM when the process that started it is killed. It is a process of
# its own, because nothing but another program may follow a fork of one with threads.
_ENDING_WITH_PARENT = """
import ctypes, os, sys
PARENT_DEATH, SIGTERM = 1, 15
ctypes.CDLL(None).prctl(PARENT_DEATH, SIGTERM, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def _ending_with_parent(command: list[str]) -> list[str]:
    if sys.platform != "linux":
        return command
    return [sys.executable, "-I", "-S", "-c", _ENDING_WITH_PARENT, *command]


def _descends(pid: int, ancestor: int) -> bool:
    """Was a process started by another, or by one that it started?"""
    while pid > 1 and pid != ancestor:
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            return False
    return pid == ancestor


def _descendants(pid: int) -> list[int]:
    """Processes of the launcher's session that are still there."""
    found = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/stat") as file:
                session = int(file.read().rsplit(")", 1)[1].split()[3])
        except (OSError, ValueError, IndexError):
            continue
        if session == pid:
            found.append(int(entry))
    return found


class SignalsToJob:
    """Between `with` and its end signals go on to the ranks of `job`, the present attempt."""

    def __init__(self, stops: Collection[int]) -> None:
        self.asked_to_stop = self.interrupted = False  # the latter by Ctrl-C
        self._job: Job | None = None
        self._stops = stops
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalsToJob:
        numbers = [getattr(signal, name) for name in PASSED_ON if hasattr(signal, name)]
        self._before = {number: signal.signal(number, self._pass_on) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        reaches = self._job is None or self._job.send(number)
        if reaches and number in self._stops:
            self.asked_to_stop = True
            self.interrupted |= number == signal.SIGINT

    def go_to(self, job: Job) -> None:
        """From now on; a request to stop that came while it was started reaches it, too."""
        self._job = job
        if self.asked_to_stop:
            job.send(signal.SIGTERM)


def run_job(
    layout: Layout,
    module: str,
    arguments: Callable[[int], Sequence[str]],
    restarts: int,
    stops: Collection[int],
    say: Callable[[str], None],
) -> int:
    """Run to the end, starting again up to `restarts` times with the ranks that are left.

    `arguments(attempt)` are the ranks' arguments; a later attempt resumes from a snapshot. Ranks
    that get one of the signals `stops` are to stop: that is the end, with the status STOPPED.
    """
    with SignalsToJob(stops) as signals:
        return _attempts(layout, module, arguments, restarts, signals, say)


def _attempts(
    layout: Layout,
    module: str,
    arguments: Callable[[int], Sequence[str]],
    restarts: int,
    signals: SignalsToJob,
    say: Callable[[str], None],
) -> int:
    for attempt in range(restarts + 1):
        if signals.asked_to_stop:
            return STOPPED
        job = Job(layout, module, arguments(attempt))
        signals.go_to(job)
        ended = job.wait()
        failure = ended.failure
        if signals.asked_to_stop and not (failure and failure.told):
            if ended.status in (0, STOPPED):
                return ended.status
            # Ctrl-C found nothing to save; a rank that had no handler yet has died of the signal.
            return INTERRUPTED if signals.interrupted else STOPPED
        if failure and not failure.told:
            say(str(failure))
        if ended.status in (0, STOPPED) or attempt == restarts:
            return ended.status
        layout = left_after(ended, layout, unreachable, say)
        if not layout.ranks:
            say("no host is left to start again on")
            return ended.status
        left = restarts - attempt - 1
        where = f" on {len(layout.placed)} host(s)" if layout.hosts else ""
        say(f"starting again with {layout.ranks} rank(s){where}, {left} restart(s) left after this")
    return 1


def left_after(
    ended: Ended,
    layout: Layout,
    unreachable: Callable[[Sequence[str]], list[str]],
    say: Callable[[str], None],
) -> Layout:
    """What a failed attempt leaves for the next one.

    A host is lost with all its ranks if they all went silent or it cannot be reached; else a rank
    that was lost takes only its own place. The last rank of a job is started again where it was.
    """
    names = [host.name for host in layout.hosts]
    cut_off = [
        name for name in names if (own := {*layout.ranks_on(name)}) and own <= {*ended.silent}
    ]
    lost = {*cut_off, *unreachable([name for name in names if name not in cut_off])}
    rank = ended.failure.sign.rank if ended.failure else None
    left = layout
    if rank is not None and rank < layout.ranks and layout.host_of(rank) not in lost:
        left = layout.without_rank(rank)
    for name in lost:
        say(f"host {name} is lost, with {len(layout.ranks_on(name))} rank(s)")
        left = left.without_host(name)
    return left if left.ranks or lost else layout
