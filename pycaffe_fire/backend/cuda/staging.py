"""Slices of gradients on their way between the device and a communicator on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..tensor import Array
from .streams import event_on


class Staging:
    """Copies on a stream of its own, to and from pinned buffers that are used again."""

    def __init__(self, xp: Any, compute: Any, allocate: Callable[[tuple[int, ...]], Array]) -> None:
        self._xp, self._compute, self._allocate = xp, compute, allocate
        self._stream = xp.cuda.Stream(non_blocking=True)
        self._free: dict[int, list[Array]] = {}
        self._lent: list[Array] = []

    def out(self, values: Array) -> Array:
        """A host copy of what the work queued so far makes of `values`; waits for it."""
        free = self._free.get(values.size)
        host = free.pop() if free else self._allocate((values.size,))
        self._lent.append(host)
        self._stream.wait_event(event_on(self._xp, self._compute))
        values.get(stream=self._stream, out=host, blocking=False)
        self._stream.synchronize()
        return host

    def back(self, pairs: Sequence[tuple[Array, Array]]) -> None:
        """Copy sums to the device; work queued later sees them, and all host buffers are free."""
        for host, device in pairs:
            device.set(np.ascontiguousarray(host), stream=self._stream)
        self._compute.wait_event(event_on(self._xp, self._stream))
        self._stream.synchronize()
        for host in self._lent:
            self._free.setdefault(host.size, []).append(host)
        self._lent = []
