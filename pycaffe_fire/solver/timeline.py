"""When every rank did what in one iteration: compute, exchange, waiting. Taken once, from an
iteration of the run itself."""  # fmt: skip

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ..layers.feed import Feed
from ..net import Net
from ..net.timing import LayerClock
from ..parallel.leaves import Leaves
from .profile import MEASURED, WARM_UP

RECORDED = WARM_UP + MEASURED + 1  # the iteration of this run that is recorded, after the profile
KINDS = DATA, FORWARD, BACKWARD, EXCHANGE, WAITING, UPDATE = (
    "data", "forward", "backward", "exchange", "waiting", "update",
)  # fmt: skip
COMPUTE_LANE, EXCHANGE_LANE = "compute", "exchange"


@dataclass(frozen=True)
class Span:
    """One thing that a rank did: on which thread, of which of KINDS, with what, and from when to
    when, in seconds since all ranks began the iteration."""

    lane: str
    kind: str
    name: str
    start: float
    stop: float


class TimelineRecorder:
    """Counts iterations and records one of them on this rank."""

    def __init__(self, leaves: Leaves) -> None:
        self._leaves = leaves
        self._iterations = 0
        self._clocks: list[LayerClock] = []
        self._spans: list[Span] = []
        self._zero = 0.0

    def begin(self) -> None:
        """An iteration begins; all ranks call it, and leave it together where it is recorded."""
        if self._clocks:  # that iteration was rolled back: this one, then
            self._stop()
        else:
            self._iterations += 1
        if self._iterations != RECORDED:
            return
        self._spans = []
        for number, net in enumerate(self._leaves.nets):
            lane = COMPUTE_LANE if number == 0 else f"{COMPUTE_LANE} {number + 1}"
            self._clocks.append(LayerClock(net, self._noting(net, lane)))
            self._clocks[-1].attach()
        self._leaves.communicator.gather_now(None)
        self._zero = time.perf_counter()

    def _noting(self, net: Net, lane: str) -> Callable[[int, str, float], None]:
        def note(index: int, which: str, seconds: float) -> None:
            layer, stop = net.layers[index], time.perf_counter()
            if not isinstance(layer, Feed):
                self._add(lane, which, layer.name, stop - seconds, stop)
            elif which == FORWARD:
                self._add(lane, DATA, layer.name, stop - seconds, stop)

        return note

    def _add(self, lane: str, kind: str, name: str, start: float, stop: float) -> None:
        self._spans.append(Span(lane, kind, name, start - self._zero, stop - self._zero))

    def end(self, computed: float, ended: float) -> list[Span] | None:
        """The iteration is over, its gradients were there at `computed`; what happened, if it was
        recorded."""
        if not self._clocks:
            return None
        self._stop()
        exchange = self._leaves.exchange
        if exchange is not None:
            for number, (start, stop) in enumerate(exchange.periods):
                self._add(EXCHANGE_LANE, EXCHANGE, f"bucket {number}", start, stop)
            self._add(COMPUTE_LANE, WAITING, "for the sums", *exchange.waited)
            self._add(COMPUTE_LANE, WAITING, "for all losses", exchange.waited[1], computed)
        self._add(COMPUTE_LANE, UPDATE, "", computed, ended)
        return sorted(self._spans, key=lambda span: span.start)

    def _stop(self) -> None:
        for clock in self._clocks:
            clock.detach()
        self._clocks = []
