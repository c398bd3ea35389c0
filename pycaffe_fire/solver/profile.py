"""Time per layer, taken from a few iterations of the run itself: nothing runs an extra time."""

from __future__ import annotations

from ..net import Net
from ..net.timing import LayerClock, LayerTimes

WARM_UP, MEASURED = 2, 3  # iterations: the first ones plan and allocate


class Profiler:
    """Counts iterations, and times the layers of a net in some of the first; the shortest counts.

    A layer whose work another one's op does has no time of its own.
    """

    def __init__(self, net: Net) -> None:
        self._net = net
        self._iterations = 0
        self._clock = LayerClock(net, self._note)
        self._shortest: dict[tuple[int, str], float] = {}

    def iteration(self) -> list[LayerTimes] | None:
        """An iteration is over; the times, once they are known."""
        self._iterations += 1
        if self._iterations == WARM_UP:
            self._clock.attach()
        if self._iterations != WARM_UP + MEASURED:
            return None
        self._clock.detach()
        return [
            LayerTimes(
                layer.name,
                self._shortest.get((i, "forward"), 0.0),
                self._shortest.get((i, "backward"), 0.0),
                self._net.layers[self._net.leader(i)].name if self._net.leader(i) != i else "",
            )
            for i, layer in enumerate(self._net.layers)
        ]

    def _note(self, index: int, which: str, seconds: float) -> None:
        shortest = self._shortest.get((index, which), seconds)
        self._shortest[index, which] = min(seconds, shortest)
