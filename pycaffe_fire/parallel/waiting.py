"""Waiting for other ranks: without keeping a core busy, and not for ever."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence

from ..errors import SolverError

FIRST_PATIENCE = 120.0  # seconds; the first iteration compiles and plans
PATIENCE = 20.0  # seconds beyond what iterations take
LONGEST_PATIENCE = 1800.0  # seconds, where ranks prepare at their own pace
JOINING_PATIENCE = 300.0  # seconds for all ranks to start
FINALIZING_PATIENCE = 60.0  # seconds for all ranks to end, once they have said that they do
YIELDS = 20  # looks without effect before the first nap
SHORTEST_NAP, LONGEST_NAP = 5e-5, 5e-4  # seconds


class PeerTimeout(SolverError):
    """Other ranks did not answer in time: `silent` are those waited for and their hosts."""

    def __init__(self, silent: Sequence[tuple[int, str]], seconds: float) -> None:
        names = [f"rank {rank} on {host}" for rank, host in silent]
        who = ", ".join(names) or "the other ranks"
        super().__init__(f"no answer from {who} within {seconds:.0f} s")
        self.silent, self.seconds = silent, seconds


class Waiting:
    """Naps that grow while nothing moves, and a deadline after which the silent are named."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = hosts
        self.patience = FIRST_PATIENCE
        self._looks = 0  # without effect, since something last moved
        self._moved = time.monotonic()

    def moved(self) -> None:
        self._looks, self._moved = 0, time.monotonic()

    def iteration_took(self, seconds: float) -> None:
        self.patience = PATIENCE + 3 * seconds

    def doze(
        self, waits_for: Callable[[], Iterable[int]] = tuple, patience: float | None = None
    ) -> None:
        """Leave the core to others for a moment; `waits_for` are ranks, a negative one is any."""
        patience = patience or self.patience
        if time.monotonic() - self._moved > patience:
            silent = sorted({rank for rank in waits_for() if rank >= 0})
            raise PeerTimeout([(rank, self._hosts[rank]) for rank in silent], patience)
        self._looks += 1
        if self._looks <= YIELDS:
            os.sched_yield()
        else:
            time.sleep(min(SHORTEST_NAP * (self._looks - YIELDS), LONGEST_NAP))
