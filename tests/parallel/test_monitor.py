"""The monitor among strangers: it listens to nobody who does not know the job's secret."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from pycaffe_fire.parallel import monitor as module
from pycaffe_fire.parallel.monitor import Monitor, Reporter, checked, tell_of_loss
from pycaffe_fire.parallel.signed import SECRET_VARIABLE, Signer, greeting, new_secret

LOSS = {"kind": "loss", "rank": 1, "host": "h", "how": "failed", "told": True}


@pytest.fixture
def secret() -> str:
    return new_secret()


@pytest.fixture
def monitor(secret: str) -> Iterator[Monitor]:
    made = Monitor(secret)
    yield made
    made.close()


def call(monitor: Monitor) -> socket.socket:
    host, port = monitor.address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=10)


def hung_up(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize(
    "line",
    [
        b"5\n",
        b"\n",
        json.dumps({"rank": 1, "host": "h", "how": "failed", "told": True}).encode() + b"\n",
        b"0" * 64 + b" " + json.dumps(LOSS).encode() + b"\n",
        b"\xff" * 5000,
    ],
)
def test_strangers_are_hung_up_on(monitor: Monitor, line: bytes) -> None:
    connection = call(monitor)
    connection.recv(100)
    connection.sendall(line)
    assert hung_up(connection)
    assert monitor.failure() is None and not monitor.signs


def test_another_secret_and_repeated_lines_are_no_use(monitor: Monitor, secret: str) -> None:
    for key, times in ((new_secret(), 1), (secret, 2)):
        connection = call(monitor)
        line = Signer(key, connection.recv(100)).line(
            {"kind": "sign", "rank": 0, "host": "h", "doing": "x", "pid": 1}
        )
        connection.sendall(line * times)  # what was overheard once does not count again
        assert hung_up(connection)
    assert monitor.failure() is None


def test_lines_without_an_end_take_no_memory(monitor: Monitor) -> None:
    connection = call(monitor)
    connection.recv(100)
    with pytest.raises(OSError):  # noqa: PT011  (whichever way it is told that nobody listens)
        for _ in range(1000):
            connection.sendall(b"x" * 100_000)


def test_it_listens_on_this_machine_only(monitor: Monitor) -> None:
    assert monitor.address.startswith("127.0.0.1:")
    assert monitor._server.getsockname()[0] == "127.0.0.1"


def test_strangers_cannot_keep_the_ranks_out(
    monitor: Monitor, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STRANGERS", 8)
    crowd = [call(monitor) for _ in range(40)]
    reporter = Reporter(3, lambda: "iteration 5", monitor.address, secret)
    until(lambda: 3 in monitor.signs and monitor.signs[3].doing == "iteration 5")
    assert reporter.connected and crowd
    reporter.close()
    until(lambda: monitor.signs[3].finished)
    assert monitor.failure() is None


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"kind": "orders"},
        {**LOSS, "rank": "1"},
        {**LOSS, "rank": -1},
        {**LOSS, "rank": True},
        {**LOSS, "told": 1},
        {**LOSS, "more": 1},
        {"kind": "sign", "rank": 0, "host": "h", "doing": "x"},
    ],
)
def test_messages_have_a_schema(said: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"not a"):
        checked(said)


def test_what_ranks_say_cannot_steer_a_terminal() -> None:
    assert checked({**LOSS, "how": "\x1b[2Jfailed"})["how"] == "?[2Jfailed"


def test_the_secret_is_part_of_every_code() -> None:
    hello = greeting()
    line = Signer("a", hello).line(LOSS)
    assert Signer("a", hello).read(line) == LOSS
    for other in (Signer("b", hello), Signer("a", greeting())):
        with pytest.raises(ValueError, match="not of this job"):
            other.read(line)


def test_losses_are_told_with_the_secret_of_the_environment(
    monitor: Monitor, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.ADDRESS_VARIABLE, monitor.address)
    monkeypatch.setenv(SECRET_VARIABLE, new_secret())
    tell_of_loss(1, "h", "failed", told=False)
    assert monitor.failure() is None
    monkeypatch.setenv(SECRET_VARIABLE, secret)
    assert tell_of_loss(1, "h", "failed", told=False)
    failure = monitor.failure()
    assert failure is not None and str(failure).startswith("rank 1 on h failed")


def test_the_first_of_several_deaths_counts(monitor: Monitor, secret: str) -> None:
    """However late the monitor looks: the kernel keeps the order in which connections end."""
    for turn in range(20):
        ranks = [Reporter(10 * turn + i, lambda: "x", monitor.address, secret) for i in range(4)]
        until(lambda ranks=ranks: all(r._rank in monitor.signs for r in ranks))  # type: ignore[misc]
        until(lambda: len([c for c in monitor._callers.values() if c.rank is not None]) >= 4)
        victim = ranks[turn % 4]
        with monitor._lock:
            monitor._lost = None
        for rank in [victim, *(r for r in ranks if r is not victim)]:
            rank._stop.set()
            rank._line.close()
        until(lambda: monitor.failure() is not None)
        failure = monitor.failure()
        assert failure is not None and failure.sign.rank == victim._rank
        until(lambda: not [c for c in monitor._callers.values() if c.rank is not None])


def test_a_reporter_notices_that_the_monitor_is_gone(secret: str) -> None:
    monitor = Monitor(secret)
    gone: list[bool] = []
    reporter = Reporter(0, lambda: "x", monitor.address, secret, gone.append)
    until(lambda: 0 in monitor.signs)
    monitor.close()
    until(lambda: gone)
    assert reporter.connected and gone == [False]  # not merely out of reach
