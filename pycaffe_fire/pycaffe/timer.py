"""pycaffe's stopwatch."""

from __future__ import annotations

import time

from .settings import wait_for_device


class Timer:
    """`start`, `stop`, and `ms` between them; on a GPU, until its work is done."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._elapsed = 0.0

    def start(self) -> None:
        self._started = self._now()

    def stop(self) -> None:
        if self._started is not None:
            self._elapsed = self._now() - self._started
            self._started = None

    @property
    def ms(self) -> float:
        """Milliseconds between the last start and stop; a running timer is stopped."""
        self.stop()
        return 1000 * self._elapsed

    @staticmethod
    def _now() -> float:
        wait_for_device()
        return time.perf_counter()
