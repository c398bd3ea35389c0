"""Batches on their way to the device, on a stream of their own.

Two device buffers per receiver take turns: while the device computes on one, the next batch is
copied into the other. Events order the two streams; the processor waits only where it wants to
refill a host buffer whose copy has not left yet, which is also what keeps it from running ahead of
the device without bound.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from ..tensor import Array
from .streams import event_on, using

BUFFERS = 2


@dataclass
class _Slot:
    """A device buffer, and the moment since which nobody computes on it."""

    buffer: Array
    read: Any = None


@dataclass
class _Rotation:
    slots: list[_Slot] = field(default_factory=list)
    turn: int = 0


class Uploads:
    def __init__(self, xp: Any, compute: Any) -> None:
        self._xp, self._compute = xp, compute
        self._stream = xp.cuda.Stream(non_blocking=True)
        self._rotations: weakref.WeakKeyDictionary[object, _Rotation] = weakref.WeakKeyDictionary()
        self._last: Any = None

    def start(self, receiver: object, values: Array) -> Array:
        """Begin to copy a flat host array; returns the device buffer it will be in, which is valid
        until the second next array for the same receiver."""
        rotation = self._rotations.setdefault(receiver, _Rotation())
        self._mark_read(rotation)
        slot = self._next_slot(rotation, values)
        if slot.read is not None:
            self._stream.wait_event(slot.read)
        slot.buffer.set(values, stream=self._stream)
        self._last = event_on(self._xp, self._stream)
        self._compute.wait_event(self._last)
        return slot.buffer

    def finish(self) -> None:
        """Wait until all copies have left their host buffers."""
        if self._last is not None:
            self._last.synchronize()
            self._last = None

    def _mark_read(self, rotation: _Rotation) -> None:
        """What was queued so far may read the current buffer; what comes now will not."""
        if rotation.slots:
            rotation.slots[rotation.turn].read = event_on(self._xp, self._compute)
            rotation.turn = (rotation.turn + 1) % BUFFERS

    def _next_slot(self, rotation: _Rotation, values: Array) -> _Slot:
        if len(rotation.slots) <= rotation.turn:
            rotation.slots.append(_Slot(self._new_buffer(values)))
        slot = rotation.slots[rotation.turn]
        if slot.buffer.size != values.size:
            slot.buffer = self._new_buffer(values)
        return slot

    def _new_buffer(self, values: Array) -> Array:
        # Made on the copy stream: memory that the pool gives to another stream would not be safe.
        with using(self._xp, self._stream):
            return self._xp.empty(values.size, values.dtype)
