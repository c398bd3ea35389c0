"""Clients that leave, stall or claim too much: answered or hung up on, and never a traceback."""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .board_cases import Server, eventually, serving

pytest.importorskip("starlette", reason="the extra `board` is not installed")
pytest.importorskip("uvicorn", reason="the extra `board` is not installed")

CLAIM = 200_000_000  # bytes


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("board") / "said.txt"


@pytest.fixture(scope="module")
def watched(case: Path, said: Path) -> Iterator[Server]:
    """A server whose words are kept."""
    with open(said, "wb") as stream, serving(case / "runs", stderr=stream) as made:
        yield made


def run_of(server: Server) -> str:
    return str(server.rows()["good"]["id"])


def begin(server: Server, length: int, path: str) -> socket.socket:
    """A connection on which an upload has been announced."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {server.host}:{server.port}\r\n"
        f"authorization: token {server.token}\r\ncontent-length: {length}\r\n\r\n"
    )
    connection = socket.create_connection((server.host, server.port), timeout=60)
    connection.sendall(head.encode())
    return connection


def test_a_claim_that_is_too_large_is_refused_at_once(watched: Server) -> None:
    """Not a byte of the body has been sent."""
    connection = begin(watched, CLAIM, f"/api/runs/{run_of(watched)}/try")
    with connection:
        answer = connection.recv(65536)
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_client_that_leaves_during_an_upload_is_no_event(watched: Server, said: Path) -> None:
    path = f"/api/runs/{run_of(watched)}/try"
    for abruptly in (False, True):
        with begin(watched, 1_000_000, path) as connection:
            connection.sendall(b"\0" * 1000)
            if abruptly:  # as a client that was killed
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    time.sleep(1)
    assert watched.ask("/")[0] == 200
    assert said.read_text() == ""


@pytest.fixture
def impatient(case: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A board in this process, which waits for less than a second."""
    import uvicorn

    from pycaffe_fire.board import app, protocol
    from pycaffe_fire.board.server import serve

    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(app, "UPLOAD_SECONDS", 0.5)
    monkeypatch.setattr(app, "BEAT", 1.5)
    made: list[Any] = []
    real = uvicorn.Server.__init__

    def remembered(server: Any, config: Any) -> None:
        real(server, config)
        made.append(server)

    monkeypatch.setattr(uvicorn.Server, "__init__", remembered)
    told: queue.Queue[str] = queue.Queue()
    arguments = (str(case / "runs"), "127.0.0.1", 0, told.put)
    thread = threading.Thread(target=serve, args=arguments)
    thread.start()
    base, _, token = told.get(timeout=60).partition("/?token=")
    yield Server("127.0.0.1", int(base.rpartition(":")[2]), token)
    eventually(lambda: made)[0].should_exit = True
    thread.join(60)


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: x\r\nname: "])
def test_a_head_that_never_ends_is_hung_up_on(impatient: Server, sent: bytes) -> None:
    """Also where a byte comes now and then."""
    with socket.create_connection((impatient.host, impatient.port), timeout=0.1) as connection:
        connection.sendall(sent)

        def has_ended() -> bool:
            try:
                if sent:
                    connection.sendall(b"a")
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        assert eventually(has_ended, 20)


def test_the_second_request_of_a_connection_may_not_stall_either(impatient: Server) -> None:
    head = f"GET / HTTP/1.1\r\nhost: {impatient.host}:{impatient.port}\r\n".encode()
    with socket.create_connection((impatient.host, impatient.port), timeout=20) as connection:
        connection.sendall(head + b"\r\n")
        answer = b""
        while not answer.endswith(b"token.\n"):
            answer += connection.recv(65536)
        assert answer.startswith(b"HTTP/1.1 403")
        connection.sendall(head)
        assert connection.recv(65536) == b""


def test_an_upload_that_stalls_is_answered(impatient: Server) -> None:
    with begin(impatient, 1_000_000, f"/api/runs/{run_of(impatient)}/try") as connection:
        connection.sendall(b"\0" * 1000)
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_a_slow_answer_is_waited_for(impatient: Server) -> None:
    """The stream of news is silent for longer than a head may take."""
    head = (
        f"GET /api/live HTTP/1.1\r\nhost: {impatient.host}:{impatient.port}\r\n"
        f"authorization: token {impatient.token}\r\n\r\n"
    )
    with socket.create_connection((impatient.host, impatient.port), timeout=20) as connection:
        connection.sendall(head.encode())
        found = b""
        while b"still here" not in found:
            found += connection.recv(65536) or b"still here, but hung up on"
    assert b"hung up on" not in found


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e300", "x"])
@pytest.mark.parametrize(
    "place", ["filters?name=conv&blob=", "records?layer=data&first=", "records?layer=data&label=",
              "record?layer=data&record=", "occlusion?target="],
)  # fmt: skip
def test_numbers_that_are_no_place(watched: Server, said: Path, place: str, number: str) -> None:
    status, content, _ = watched.ask(f"/api/runs/{run_of(watched)}/{place}{number}")
    assert status == 400 and b"must be a" in content
    assert said.read_text() == ""


def test_a_port_of_many_digits(watched: Server, said: Path) -> None:
    assert watched.ask("/", host=f"{watched.host}:{'9' * 5000}")[0] == 403
    assert said.read_text() == ""
