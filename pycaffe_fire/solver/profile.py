"""Time per layer, taken from a few iterations of the run itself: nothing runs an extra time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..backend.base import Backend
from ..net import Net

WARM_UP, MEASURED = 2, 3  # iterations: the first ones plan and allocate


@dataclass
class LayerTime:
    """Seconds of one pass of one leaf; a layer whose work another one's op does has none."""

    name: str
    forward: float
    backward: float


class Profiler:
    """Counts iterations, and times the layers of a net in some of the first."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._done = 0
        self._shortest: dict[tuple[int, str], float] = {}

    def iteration(self) -> list[LayerTime] | None:
        """An iteration is over; the times, once they are known."""
        self._done += 1
        if self._done == WARM_UP:
            self._attach()
        if self._done != WARM_UP + MEASURED:
            return None
        self.detach()
        found = self._shortest
        return [
            LayerTime(layer.name, found.get((i, "forward"), 0.0), found.get((i, "backward"), 0.0))
            for i, layer in enumerate(self._net.layers)
        ]

    def _attach(self) -> None:
        for i, layer in enumerate(self._net.layers):
            for which in ("forward", "backward"):
                setattr(layer, which, self._timed(getattr(layer, which), (i, which)))

    def detach(self) -> None:
        """Let the layers run as they did before."""
        for layer in self._net.layers:
            for which in ("forward", "backward"):
                vars(layer).pop(which, None)

    def _timed(self, call: Callable[..., None], key: tuple[int, str]) -> Callable[..., None]:
        def timed(*blobs: Any) -> None:
            began = time.perf_counter()
            call(*blobs)
            _wait(self._net.backend)
            seconds = time.perf_counter() - began
            self._shortest[key] = min(seconds, self._shortest.get(key, seconds))

        return timed


def _wait(backend: Backend) -> None:
    """A device has only been told what to do."""
    if not backend.on_host:
        backend.xp.cuda.Device().synchronize()
