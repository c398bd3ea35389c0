"""HTTP as uvicorn speaks it, less the connections on which a request never begins."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0  # that a client may take to send the head of a request


class ImpatientProtocol(H11Protocol):
    """Closes a connection whose client does not send the whole head of a request in time.

    uvicorn has a timeout for connections that are idle between requests, but none for the first
    request and none for a head that comes byte by byte.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._stop_watching()

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:  # a request has begun, or none can follow
            self._stop_watching()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self.transport.close)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
