"""Watching the ranks from outside: who is silent, who died, and what it did last.

Every rank has a thread that tells the monitor once a second what it is doing, and a second
connection that says nothing: it ends when the rank does, and of several the kernel keeps the order.
A stopped process says nothing, a killed one hangs up; both are named. The monitor lives in
`fire_train -n`, which started the ranks, or in ranks that watch others (watch.py). It listens to
nobody who does not know the job's secret (signed.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .hosts import own_addresses
from .signed import LONGEST_LINE, SECRET_VARIABLE, Signer, greeting, is_greeting

ADDRESS_VARIABLE = "PYCAFFE_FIRE_MONITOR"
INTERVAL = 1.0  # seconds between two signs of life
SILENCE = 15.0  # seconds without one before a rank counts as hanging
DIED = "died"
LOOPBACK = "127.0.0.1"
STRANGERS = 256  # callers at once that have not yet shown that they belong to the job
PATIENCE = 10.0  # seconds a caller has for that
CONNECTING = 3.0  # seconds for each address of a monitor
UNREACHABLE = 20.0  # seconds in which nothing arrives before a connection counts as lost
CUT_OFF = {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN}
_TICK = 0.5  # seconds


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


# The kinds of messages, and what each must hold.
_RANK: dict[str, type] = {"rank": int, "host": str}
_SCHEMA: dict[str, dict[str, type]] = {
    "sign": {**_RANK, "doing": str, "pid": int},
    "line": _RANK,  # this connection ends when the rank does
    "end": _RANK,  # and now it may
    "loss": {**_RANK, "how": str, "told": bool},
}


def checked(said: dict[str, Any]) -> dict[str, Any]:
    """A message of a known kind with exactly its fields; a ValueError otherwise."""
    fields = _SCHEMA.get(str(said.get("kind")), {})
    if not fields or said.keys() != {"kind", *fields}:
        raise ValueError("not a message")
    for name, kind in fields.items():
        if type(said[name]) is not kind or (kind is int and not 0 <= said[name] < 2**31):
            raise ValueError(f"{name} is not a {kind.__name__}")
        if kind is str:  # it may be shown on a terminal
            said[name] = "".join(c if c.isprintable() else "?" for c in said[name])
    return said


class _Caller:
    """One connection: its lines so far, and the rank whose life it stands for."""

    def __init__(self, connection: socket.socket, secret: str) -> None:
        connection.setblocking(False)
        self.connection, self.began = connection, time.monotonic()
        hello = greeting()
        connection.send(hello)
        self._signer = Signer(secret, hello)
        self._rest = b""
        self.known = False
        self.rank: int | None = None

    def messages(self) -> list[dict[str, Any]] | None:
        """What arrived, at most one buffer of it; None at the end. Raises what strangers cause."""
        try:
            got = self.connection.recv(LONGEST_LINE)
        except BlockingIOError:
            return []
        if not got:
            return None
        *lines, self._rest = (self._rest + got).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            raise ValueError("a line without an end")
        found = [checked(self._signer.read(line)) for line in lines]
        self.known = self.known or bool(found)
        return found


class Monitor:
    """Listens to the ranks; the first that fails takes the others with it, so it alone counts.

    Only where `local` is false can other hosts call.
    """

    def __init__(self, secret: str, local: bool = True) -> None:
        self.signs: dict[int, Sign] = {}
        self._secret, self._local = secret, local
        self._lost: Failure | None = None
        self.heard = threading.Event()  # of a rank that is lost
        self._lock = threading.RLock()  # a signal may come while its own thread holds it
        self._server = socket.create_server((LOOPBACK if local else "", 0), backlog=1024)
        self._server.setblocking(False)
        self._callers: dict[int, _Caller] = {}
        # Of several that became ready it gives the earliest first: those who died are told apart.
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._closed = threading.Event()
        self._waker, self._woken = socket.socketpair()  # ends the wait for callers
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="monitor", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """host:port for the ranks' environment, or host,address,...:port to be tried in turn."""
        hosts = [LOOPBACK] if self._local else [socket.gethostname(), *own_addresses()]
        return f"{','.join(hosts)}:{self._server.getsockname()[1]}"

    def _serve(self) -> None:
        while not self._closed.is_set():
            for key, _ in self._selector.select(_TICK):
                if key.fileobj is self._server:
                    self._accept()
                elif key.fd in self._callers:  # it may have had to go meanwhile
                    self._read(self._callers[key.fd])
            late = time.monotonic() - PATIENCE
            for caller in [c for c in self._callers.values() if not c.known and c.began < late]:
                self._drop(caller)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._server.accept()
            strangers = [c for c in self._callers.values() if not c.known]
            if len(strangers) >= STRANGERS:  # the one that has had most time has to go
                self._drop(strangers[0])
            try:
                caller = _Caller(connection, self._secret)
            except OSError:
                connection.close()
                return
            self._callers[connection.fileno()] = caller
            self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, caller: _Caller) -> None:
        try:
            messages = caller.messages()
        except (OSError, ValueError, RecursionError):
            messages = None
        if messages is None:
            self._drop(caller)
            if caller.rank is not None:
                self._hang_up(caller.rank)
            return
        for said in messages:
            self._hear(caller, said)

    def _drop(self, caller: _Caller) -> None:
        self._selector.unregister(caller.connection)
        del self._callers[caller.connection.fileno()]
        caller.connection.close()

    def _hear(self, caller: _Caller, said: dict[str, Any]) -> None:
        rank, host = said["rank"], said["host"]
        with self._lock:
            sign = self.signs.setdefault(rank, Sign(rank, host, "starting", time.monotonic()))
            if said["kind"] == "sign":
                sign.host, sign.doing, sign.pid = host, said["doing"], said["pid"]
                sign.when = time.monotonic()
            elif said["kind"] == "line":
                caller.rank, sign.finished = rank, False
            elif said["kind"] == "end":
                sign.finished = True
            else:
                self._lose(Failure(sign, said["how"], said["told"]))

    def _hang_up(self, rank: int) -> None:
        with self._lock:
            if not self.signs[rank].finished:
                self._lose(Failure(self.signs[rank], DIED))

    def _lose(self, failure: Failure) -> None:
        if self._lost is None:
            self._lost = failure
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

    def silent_ranks(self) -> set[int]:
        """Those that have said nothing for so long that, beside one that hangs, they do too."""
        with self._lock:
            since = time.monotonic() - SILENCE + 2 * INTERVAL
            return {s.rank for s in self.signs.values() if not s.finished and s.when < since}

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
        self._closed.set()
        self._waker.send(b"\0")
        self._thread.join(2 * _TICK)
        for caller in list(self._callers.values()):
            self._drop(caller)
        for each in (self._server, self._waker, self._woken):
            each.close()
        self._selector.close()


class Reporter:
    """A rank's thread that tells a monitor, if there is one, what the rank is doing.

    `on_loss` is called from that thread when the monitor is gone; it is told whether it may still
    be there and only cannot be reached.
    """

    def __init__(
        self, rank: int, doing: Callable[[], str], address: str, secret: str,
        on_loss: Callable[[bool], None] = lambda cut_off: None,
    ) -> None:  # fmt: skip
        self._stop = threading.Event()
        self._rank, self._doing, self._on_loss = rank, doing, on_loss
        self._thread: threading.Thread | None = None
        if not address:
            return
        try:
            self._signs, self._line = _Line(address, secret), _Line(address, secret)
            self._line.say("line", rank)
        except OSError:
            return
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)
        self._thread.start()

    @property
    def connected(self) -> bool:
        return self._thread is not None

    def _run(self) -> None:
        try:
            while True:
                self._signs.say("sign", self._rank, doing=self._doing(), pid=os.getpid())
                if self._stop.wait(INTERVAL):
                    return
        except OSError as error:
            if not self._stop.is_set():
                self._on_loss(error.errno in CUT_OFF)

    def close(self) -> None:
        """Sign off: what happens to the connection from now on is no failure."""
        self._end(lambda: self._line.say("end", self._rank))

    def fail(self) -> None:
        """Say that this rank fails, and tells why itself."""
        self._end(lambda: self._line.say("loss", self._rank, how="failed", told=True))

    def _end(self, last_words: Callable[[], None]) -> None:
        if self._thread is None or self._stop.is_set():
            return
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        with contextlib.suppress(OSError):
            last_words()
        self._line.close()
        self._signs.close()


class _Line:
    """A connection to a monitor."""

    def __init__(self, address: str, secret: str) -> None:
        self._socket, hello = _connect(address)
        self._signer = Signer(secret, hello)

    def say(self, kind: str, rank: int, host: str = "", **more: Any) -> None:
        for name, value in more.items():
            if isinstance(value, str):  # a line has an end
                more[name] = value[: LONGEST_LINE // 8]
        said = {"kind": kind, "rank": rank, "host": host or socket.gethostname(), **more}
        self._socket.sendall(self._signer.line(said))

    def wait_until_heard(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)
        self._socket.recv(1)  # the monitor hangs up when it has heard

    def close(self) -> None:
        self._socket.close()


def tell_of_loss(rank: int, host: str, how: str, told: bool) -> bool:
    """Tell the monitor which rank is lost, before all the others are; false if there is none."""
    address = os.environ.get(ADDRESS_VARIABLE)
    if not address:
        return False
    try:
        line = _Line(address, os.environ.get(SECRET_VARIABLE, ""))
        line.say("loss", rank, host, how=how, told=told)
        line.wait_until_heard()
        line.close()
    except OSError:
        return False
    return True


def _connect(address: str) -> tuple[socket.socket, bytes]:
    """The monitor, and its greeting: by one of its names or addresses, or on this very machine
    where none of them leads there."""
    hosts, port = address.rsplit(":", 1)
    tried = [*hosts.split(","), LOOPBACK]
    for host in tried:
        try:
            connection = socket.create_connection((host, int(port)), timeout=CONNECTING)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # else it takes the kernel a quarter of an hour
                milliseconds = int(1000 * UNREACHABLE)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
            hello = connection.recv(LONGEST_LINE)
            if is_greeting(hello):
                return connection, hello
            connection.close()  # another host has this address, too
        except OSError:
            continue
    raise ConnectionError(f"no monitor at {address}")
