"""The messages of one sum: a tag of their own, so that several sums can be under way at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backend.tensor import Array
from .wire import Wire


@dataclass
class Message:
    """Something under way from or to `peer`; it keeps its memory alive."""

    request: Any
    peer: int
    data: NDArray[Any]


class Channel:
    """Sends and receives float32 slices in the wire's format; its scratch memory is reused.

    Slices are arrays of `xp`. On a device `settle` waits for all work on them: only then may the
    MPI library touch them.
    """

    def __init__(self, comm: Any, wire: Wire, xp: Any, settle: Callable[[], object]) -> None:
        self._comm, self._wire, self._xp, self._settle = comm, wire, xp, settle
        self._scratch: dict[int, NDArray[Any]] = {}
        self.tag = 0

    @property
    def _plain(self) -> bool:
        return bool(self._wire.dtype == np.float32)

    def send(self, values: Array, peer: int) -> Message:
        data = self._wire.encode(values, self._xp)
        self._settle()
        return Message(self._comm.Isend(data, peer, self.tag), peer, data)

    def receive(self, elements: int, peer: int, slot: int = 0) -> Message:
        """Receive into scratch memory number `slot`."""
        held = self._scratch.get(slot)
        if held is None or held.size < elements:
            held = self._scratch[slot] = self._xp.empty(elements, self._wire.dtype)
        data = held[:elements]
        self._settle()
        return Message(self._comm.Irecv(data, peer, self.tag), peer, data)

    def receive_into(self, target: Array, peer: int, slot: int = 0) -> Message:
        """Receive what `settle` will have put into `target`, without a copy where it can be."""
        if not self._plain:
            return self.receive(target.size, peer, slot)
        self._settle()
        return Message(self._comm.Irecv(target, peer, self.tag), peer, target)

    def settle(self, message: Message, target: Array) -> None:
        """`target` holds the values of a complete message."""
        self._wire.decode(message.data, target)

    def values(self, message: Message) -> Array:
        """A complete message as float32: the message itself if it is."""
        if self._plain:
            return message.data
        values: Array = self._xp.empty(message.data.size, np.float32)
        self._wire.decode(message.data, values)
        return values

    def round(self, values: Array) -> None:
        """Round in place to what the others will receive, so that all ranks agree."""
        if not self._plain:
            self._wire.decode(self._wire.encode(values, self._xp), values)

    def add(self, total: Array, part: Array) -> None:
        self._xp.add(total, part, out=total)
