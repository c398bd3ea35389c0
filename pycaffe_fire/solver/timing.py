"""Where time goes: compute, waiting for data, communication exposed and hidden, update."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..layers.feed import Feed
from ..parallel.leaves import Leaves


@dataclass
class Times:
    """Seconds since the last look; `hidden` communication ran beside compute and cost nothing."""

    compute: float = 0.0
    data: float = 0.0
    exposed: float = 0.0
    hidden: float = 0.0
    update: float = 0.0

    @property
    def total(self) -> float:
        return self.compute + self.data + self.exposed + self.update

    def text(self) -> str:
        parts = [f"{f.name} {getattr(self, f.name):.3g} s" for f in fields(self)]
        return ", ".join(parts)


class Stopwatch:
    """Adds up an iteration's parts."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self.times = Times()
        self._seen = (0.0, 0.0, 0.0)

    def _counters(self) -> tuple[float, float, float]:
        """Data wait (the slowest net of those that run side by side), exposed, busy."""
        waits = [
            sum(layer.wait_seconds for layer in net.layers if isinstance(layer, Feed))
            for net in self._leaves.nets
        ]
        exchange = self._leaves.exchange
        if exchange is None:
            return max(waits), 0.0, 0.0
        return max(waits), exchange.exposed_seconds, exchange.busy_seconds

    def iteration(self, gradients: float, update: float) -> None:
        """An iteration spent so many seconds on its gradients and on the update."""
        now = self._counters()
        wait, exposed, busy = (a - b for a, b in zip(now, self._seen, strict=True))
        self._seen = now
        times = self.times
        times.data += wait
        times.exposed += exposed
        times.hidden += max(0.0, busy - exposed)
        times.compute += max(0.0, gradients - wait - exposed)
        times.update += update

    def take(self) -> Times:
        """What has been added up, starting again from zero."""
        taken, self.times = self.times, Times()
        return taken
