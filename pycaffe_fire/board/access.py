"""Who may ask: a token in the printed address, a cookie afterwards, and no page but ours.

Every request, whatever its method, must name us as its host, come from our own page if it says
where from, and bring the token. Under the policy in our answers a browser runs our scripts alone.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
SAFE = ("GET", "HEAD")
MOST_DIGITS = 5  # of a port
NO_TOKEN = "fire_board: open the address that fire_board printed; it holds the token.\n"


def new_token() -> str:
    return secrets.token_urlsafe(24)


class Access:
    """Middleware around everything; `host` is the address that is listened on."""

    def __init__(self, app: App, token: str, host: str, port: int) -> None:
        self.app, self.token, self.port = app, token, port
        self.cookie = f"fire_board_{port}"
        self.any_address = host in ("0.0.0.0", "::", "")
        self.names = {"localhost", "127.0.0.1", "::1", host.lower()}
        if host not in ("127.0.0.1", "::1", "localhost"):
            self.names.add(socket.gethostname().lower())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # we have no web sockets
            return
        request = Request(scope)
        refusal = self._refusal(request)
        answer = refusal if refusal is not None else self.app
        given = request.query_params.get("token", "")
        grant = refusal is None and request.url.path == "/" and bool(given)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(k, v) for k, v in message["headers"] if k.decode() not in HEADERS]
                headers += [(k.encode(), v.encode()) for k, v in HEADERS.items()]
                if grant:
                    headers.append((b"set-cookie", self._grant().encode()))
                message["headers"] = headers
            await send(message)

        with suppress(ClientDisconnect):  # in the middle of an upload
            await answer(scope, receive, guarded)

    def _grant(self) -> str:
        return f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"

    def _refusal(self, request: Request) -> Response | None:
        """Why not, if not."""
        host = request.headers.get("host", "")
        if not self._is_ours(host):
            return PlainTextResponse("fire_board: this is not the host you asked for\n", 403)
        if not self._same_origin(request, host):
            return PlainTextResponse("fire_board: asked from another page\n", 403)
        if not self._has_token(request):
            return PlainTextResponse(NO_TOKEN, 403)
        return None

    def _is_ours(self, host: str) -> bool:
        """A name that only we are called by: another one may have been bent to our address."""
        name, port = _split(host)
        if port != self.port:
            return False
        return name in self.names or (self.any_address and _is_address(name))

    def _same_origin(self, request: Request, host: str) -> bool:
        origin = request.headers.get("origin")
        if origin is not None:
            return origin == f"http://{host}"
        if request.method in SAFE:
            return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin") or (
                request.url.path == "/" and request.headers.get("sec-fetch-mode") == "navigate"
            )
        # Browsers name the origin of whatever changes something; a script shows the token.
        return "authorization" in request.headers

    def _has_token(self, request: Request) -> bool:
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        shown = [
            request.cookies.get(self.cookie, ""),
            bearer if scheme.lower() in ("token", "bearer") else "",
            request.query_params.get("token", "") if request.url.path == "/" else "",
        ]
        return any(hmac.compare_digest(s.encode(), self.token.encode()) for s in shown)


def _split(host: str) -> tuple[str, int]:
    name, colon, port = host.rpartition(":")
    if not colon or host.endswith("]"):
        name, port = host, "80"
    is_port = port.isdecimal() and len(port) <= MOST_DIGITS
    return name.strip("[]").lower(), int(port) if is_port else -1


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
