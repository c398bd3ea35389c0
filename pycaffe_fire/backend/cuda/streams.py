"""Streams and events, as everything here uses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def using(xp: Any, stream: Any) -> Iterator[None]:
    """Queue work on a stream; then on the one from before again.

    CuPy's own `with stream` ends on the stream of the `with` outside of it: after `use()`, on the
    NULL stream, which nothing orders with ours.
    """
    before = xp.cuda.get_current_stream()
    stream.use()
    try:
        yield
    finally:
        before.use()


def event_on(xp: Any, stream: Any) -> Any:
    """An event that is done when all work queued on a stream so far is."""
    event = xp.cuda.Event(disable_timing=True)
    event.record(stream)
    return event
