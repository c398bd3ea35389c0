"""The messages of one sum: a tag of their own, so that several sums can be under way at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backend.tensor import Array
from .neighbours import NOTE_ELEMENTS, Neighbours
from .wire import Wire


@dataclass
class Message:
    """Something under way from or to `peer`; it keeps its memory alive."""

    request: Any
    peer: int
    data: NDArray[Any]
    status: Any = None

    def complete(self) -> bool:
        return bool(self.request.Test(self.status))


class Channel:
    """Sends and receives float32 slices in the wire's format; its scratch memory is reused.

    Slices are arrays of `xp`. On a device `wait` waits for all work on them: only then may the
    MPI library touch them. `neighbours` read a slice that is lent to them where it lies: they are
    sent a note in its place, which is shorter than any such slice.
    """

    def __init__(
        self, comm: Any, wire: Wire, xp: Any, wait: Callable[[], object],
        neighbours: Neighbours | None = None,
    ) -> None:  # fmt: skip
        self._comm, self._wire, self._xp, self._wait = comm, wire, xp, wait
        self._neighbours = neighbours
        self._scratch: dict[int, NDArray[Any]] = {}
        self._lent: list[int] = []  # to whom, in this sum
        self._borrowed: list[int] = []  # from whom
        self.tag = 0

    @property
    def _plain(self) -> bool:
        return bool(self._wire.dtype == np.float32)

    def send(self, values: Array, peer: int) -> Message:
        data = self._wire.encode(values, self._xp)
        self._wait()
        return Message(self._comm.Isend(data, peer, self.tag), peer, data)

    def lend(self, values: Array, peer: int) -> Message:
        """Send, or let a neighbour read; the values must then stay as they are until `releases`, or
        until something has come back for which the peer had to read them."""  # fmt: skip
        note = self._neighbours.note(values, peer) if self._neighbours is not None else None
        if note is None:
            return self.send(values, peer)
        self._lent.append(peer)
        return Message(self._comm.Isend(note, peer, self.tag), peer, note)

    def releases(self) -> list[Message]:
        """At the end of a sum: complete when all that was lent has been read."""
        token = np.zeros(1, np.float32)
        messages = [
            Message(self._comm.Isend(token, peer, self.tag), peer, token) for peer in self._borrowed
        ]
        for peer in self._lent:
            token = np.empty(1, np.float32)
            messages.append(Message(self._comm.Irecv(token, peer, self.tag), peer, token))
        self._lent, self._borrowed = [], []
        return messages

    def receive(self, elements: int, peer: int, slot: int = 0) -> Message:
        """Receive into scratch memory number `slot`."""
        held = self._scratch.get(slot)
        if held is None or held.size < elements:
            held = self._scratch[slot] = self._xp.empty(elements, self._wire.dtype)
        return self._receive(held[:elements], peer)

    def receive_into(self, target: Array, peer: int, slot: int = 0) -> Message:
        """Receive what `decode_into` will put into `target`, without a copy where it can be."""
        return self._receive(target, peer) if self._plain else self.receive(target.size, peer, slot)

    def _receive(self, data: Array, peer: int) -> Message:
        self._wait()
        status = None if self._neighbours is None else self._neighbours.new_status()
        return Message(self._comm.Irecv(data, peer, self.tag), peer, data, status)

    def decode_into(self, message: Message, target: Array) -> None:
        """`target` holds the values of a complete message."""
        self._wire.decode(self._content(message), target)

    def values(self, message: Message) -> Array:
        """A complete message as float32: the message itself if it is, or a neighbour's memory."""
        content = self._content(message)
        if self._plain:
            return content
        values: Array = self._xp.empty(content.size, np.float32)
        self._wire.decode(content, values)
        return values

    def _content(self, message: Message) -> Array:
        """What a message says, or what a note points to."""
        data, neighbours = message.data, self._neighbours
        if neighbours is None or not neighbours.is_note(message.status, data.size):
            return data
        self._borrowed.append(message.peer)
        return neighbours.view(data[:NOTE_ELEMENTS], data.size)

    def round(self, values: Array) -> None:
        """Round in place to what the others will receive, so that all ranks agree."""
        if not self._plain:
            self._wire.decode(self._wire.encode(values, self._xp), values)

    def add(self, total: Array, part: Array) -> None:
        self._xp.add(total, part, out=total)
