"""Time per layer, taken from a few iterations of the run itself: nothing runs an extra time."""

from __future__ import annotations

import time

from ..net import Net
from ..net.timing import LayerTimes, wait_for_device

WARM_UP, MEASURED = 2, 3  # iterations: the first ones plan and allocate


class Profiler:
    """Counts iterations, and times the layers of a net in some of the first; the shortest counts.

    A layer whose work another one's op does has no time of its own.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._iterations = 0
        self._began = 0.0
        self._shortest: dict[tuple[int, str], float] = {}

    def iteration(self) -> list[LayerTimes] | None:
        """An iteration is over; the times, once they are known."""
        self._iterations += 1
        hooks = self._net.hooks
        pairs = (
            (hooks.before_forward, self._start),
            (hooks.after_forward, self._forward),
            (hooks.before_backward, self._start),
            (hooks.after_backward, self._backward),
        )
        if self._iterations == WARM_UP:
            for called, hook in pairs:
                called.append(hook)
        if self._iterations != WARM_UP + MEASURED:
            return None
        for called, hook in pairs:
            called.remove(hook)
        return [
            LayerTimes(
                layer.name,
                self._shortest.get((i, "forward"), 0.0),
                self._shortest.get((i, "backward"), 0.0),
                self._net.layers[self._net.leader_of[i]].name if i in self._net.leader_of else "",
            )
            for i, layer in enumerate(self._net.layers)
        ]

    def _start(self, index: int) -> None:
        self._began = time.perf_counter()

    def _forward(self, index: int) -> None:
        self._end(index, "forward")

    def _backward(self, index: int) -> None:
        self._end(index, "backward")

    def _end(self, index: int, which: str) -> None:
        wait_for_device(self._net.backend)
        seconds = time.perf_counter() - self._began
        shortest = self._shortest.get((index, which), seconds)
        self._shortest[index, which] = min(seconds, shortest)
