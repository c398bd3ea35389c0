"""Watching the ranks from outside: who is silent, who died, and what it did last.

Every rank has a thread that tells the monitor once a second what it is doing. A stopped process
says nothing, a killed one hangs up; both are named. The monitor lives in `fire_train -n`, which
started the ranks, or in ranks that watch others (watch.py).
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

ADDRESS_VARIABLE = "PYCAFFE_FIRE_MONITOR"
INTERVAL = 1.0  # seconds between two signs of life
SILENCE = 15.0  # seconds without one before a rank counts as hanging


@dataclass
class Sign:
    """What a rank said last."""

    rank: int
    host: str
    doing: str
    when: float
    finished: bool = False
    pid: int = 0


@dataclass
class Failure:
    """A rank that is lost, and how."""

    sign: Sign
    how: str
    told: bool = False  # has the rank itself said so?

    def __str__(self) -> str:
        sign = self.sign
        return f"rank {sign.rank} on {sign.host} {self.how}; last seen: {sign.doing}"


class Monitor:
    """Listens to the ranks; the first that fails takes the others with it, so it alone counts."""

    def __init__(self) -> None:
        self.signs: dict[int, Sign] = {}
        self._lost: Failure | None = None
        self.heard = threading.Event()  # of a rank that is lost
        self._lock = threading.RLock()  # a signal may come while its own thread holds it
        monitor = self

        class Listener(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                monitor._listen(self.rfile)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 1024  # all ranks call at once

        self._server = Server(("", 0), Listener)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def _listen(self, lines: Iterable[bytes]) -> None:
        """What one rank has to say, until it hangs up or the connection breaks."""
        rank = None
        with contextlib.suppress(OSError, ValueError, KeyError):
            for line in lines:
                said = json.loads(line)
                if "how" in said:
                    self._hear_of_loss(said)
                else:
                    rank = int(said["rank"])
                    self._hear(rank, said)
        if rank is not None:
            self._hang_up(rank)

    @property
    def address(self) -> str:
        """host:port for the ranks' environment."""
        return f"{socket.gethostname()}:{self._server.server_address[1]}"

    def _hear(self, rank: int, said: dict[str, object]) -> None:
        with self._lock:
            self.signs[rank] = Sign(
                rank, str(said["host"]), str(said["doing"]), time.monotonic(),
                bool(said.get("finished")), int(str(said["pid"])),
            )  # fmt: skip

    def _hear_of_loss(self, said: dict[str, Any]) -> None:
        rank = int(said["rank"])
        with self._lock:
            unknown = Sign(rank, said["host"], "nothing", time.monotonic())
            if self._lost is None:
                self._lost = Failure(self.signs.get(rank, unknown), said["how"], said["told"])
                self.heard.set()

    def _hang_up(self, rank: int) -> None:
        with self._lock:
            sign = self.signs[rank]
            if self._lost is None and not sign.finished:
                self._lost = Failure(sign, "died")
                self.heard.set()

    def failure(self) -> Failure | None:
        """The rank that was lost first, or one that hangs."""
        with self._lock:
            if self._lost is not None:
                return self._lost
            for sign in self.signs.values():
                if not sign.finished and time.monotonic() - sign.when > SILENCE:
                    return Failure(sign, f"has been silent for {SILENCE:.0f} s")
        return None

    def forgive(self) -> None:
        """A rank that was silent until now need not account for it."""
        with self._lock:
            for sign in self.signs.values():
                sign.when = time.monotonic()

    def local_ranks(self) -> list[int]:
        """The processes of the ranks on this host that have spoken."""
        here = socket.gethostname()
        with self._lock:
            alive = [sign for sign in self.signs.values() if not sign.finished]
            return [sign.pid for sign in alive if sign.host == here]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Reporter:
    """A rank's thread that tells a monitor, if there is one, what the rank is doing."""

    def __init__(self, rank: int, doing: Callable[[], str], address: str) -> None:
        self._stop = threading.Event()
        self._rank, self._doing = rank, doing
        self._thread: threading.Thread | None = None
        if not address:
            return
        try:
            self._socket = _connect(address)
        except OSError:
            return
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def connected(self) -> bool:
        return self._thread is not None

    def _run(self) -> None:
        try:
            while not self._stop.wait(INTERVAL):
                self._say(finished=False)
        except OSError:  # the monitor is gone: nothing would read this
            return

    def _say(self, finished: bool) -> None:
        said = {
            "rank": self._rank,
            "host": socket.gethostname(),
            "doing": self._doing(),
            "finished": finished,
            "pid": os.getpid(),
        }
        self._socket.sendall(json.dumps(said).encode() + b"\n")

    def close(self) -> None:
        """Sign off: what happens to the connection from now on is no failure."""
        self._end(lambda: self._say(finished=True))

    def fail(self) -> None:
        """Say that this rank fails, and tells why itself."""
        self._end(
            lambda: _send_loss(self._socket, self._rank, socket.gethostname(), "failed", True)
        )

    def _end(self, last_words: Callable[[], None]) -> None:
        if self._thread is None or self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            last_words()
            self._socket.close()


def tell_of_loss(rank: int, host: str, how: str, told: bool) -> bool:
    """Tell the monitor which rank is lost, before all the others are; false if there is none."""
    address = os.environ.get(ADDRESS_VARIABLE)
    if not address:
        return False
    try:
        with _connect(address) as connection:
            _send_loss(connection, rank, host, how, told)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)  # hangs up when it has heard: others may die from now on
    except OSError:
        return False
    return True


def _send_loss(connection: socket.socket, rank: int, host: str, how: str, told: bool) -> None:
    said = {"rank": rank, "host": host, "how": how, "told": told}
    connection.sendall(json.dumps(said).encode() + b"\n")


def _connect(address: str) -> socket.socket:
    """The monitor by its name, or on this very machine where names do not resolve."""
    host, port = address.rsplit(":", 1)
    try:
        return socket.create_connection((host, int(port)), timeout=10)
    except OSError:
        return socket.create_connection(("127.0.0.1", int(port)), timeout=10)
