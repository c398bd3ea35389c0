"""Signals as requests to a running solver, as in Caffe: Ctrl-C stops it, SIGHUP snapshots."""

from __future__ import annotations

import logging
import signal
from collections import deque
from types import FrameType
from typing import Any

from .options import Action

log = logging.getLogger("pycaffe_fire")

EFFECTS = {"stop": Action.STOP, "snapshot": Action.SNAPSHOT, "none": Action.NONE}


class SignalRequests:
    """Between `with` and its end signals are kept; calling this gives the oldest one's action.

    It is a solver's `requested_action`. Where a signal means stop, the second one raises
    KeyboardInterrupt: a user who cannot wait for the end of an iteration need not.
    """

    def __init__(self, sigint: Action, sighup: Action) -> None:
        self._effects: dict[int, Action] = {signal.SIGINT: sigint}
        if hasattr(signal, "SIGHUP"):
            self._effects[signal.SIGHUP] = sighup
        self._pending: deque[Action] = deque()
        self._stopping = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalRequests:
        self._before = {number: signal.signal(number, self._catch) for number in self._effects}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        action = self._effects[number]
        if action is Action.STOP:
            if self._stopping:
                raise KeyboardInterrupt
            self._stopping = True
        if action is not Action.NONE:
            self._pending.append(action)

    def __call__(self) -> Action:
        action = self._pending.popleft() if self._pending else Action.NONE
        if action is Action.STOP:
            log.warning("Stopping as asked; asking once more stops at once, without a snapshot")
        return action
