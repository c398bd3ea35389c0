"""Listening: on an address with a token in it, which is told once."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from ..errors import FireError
from ..installation import install_hint

PORT = 8890
TRIES = 20  # ports after the first


def serve(folder: str, host: str, port: int | None, say: Callable[[str], None]) -> None:
    """Serve the runs below a folder until the process is stopped; `say` is told the address."""
    try:
        import uvicorn

        from .access import new_token
        from .app import make_app
        from .protocol import ImpatientProtocol
    except ImportError as error:
        raise FireError(f"fire_board needs {error.name}: {install_hint('board')}") from None
    if not os.path.isdir(folder):
        raise FireError(f"{folder}: no such folder; name one with runs in it")
    listening = _listen(host, port)
    number = listening.getsockname()[1]
    token = new_token()
    app = make_app(folder, token, host, number)
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, lifespan="on",
        timeout_graceful_shutdown=1, http=ImpatientProtocol,
    )  # fmt: skip
    say(f"http://{_shown(host)}:{number}/?token={token}")
    uvicorn.Server(config).run(sockets=[listening])


def _shown(host: str) -> str:
    """What to type into a browser."""
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _listen(host: str, port: int | None) -> socket.socket:
    """The port asked for, or the first free one from PORT on."""
    ports = [port] if port is not None else range(PORT, PORT + TRIES)
    problem: OSError | None = None
    for number in ports:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
            made.listen(128)
            return made
        except OSError as error:
            made.close()
            problem = error
    raise FireError(
        f"cannot listen on {host}, port {ports[0]}: {problem and problem.strerror}; choose "
        f"another with --port or --host"
    )
