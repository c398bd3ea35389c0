"""Signals as requests to a running solver, as in Caffe: Ctrl-C stops it, SIGHUP snapshots.

Schedulers ask a job to end by SIGTERM, or by a signal of the user's choice some time before.
"""

from __future__ import annotations

import logging
import signal
from collections import deque
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from ..backend.compiled import compiling, interrupted_if
from .options import Action

log = logging.getLogger("pycaffe_fire")

EFFECTS = {"stop": Action.STOP, "snapshot": Action.SNAPSHOT, "none": Action.NONE}
DEFAULT_EFFECTS = {
    "sigint": "stop", "sighup": "snapshot", "sigterm": "stop", "sigusr1": "stop",
    "sigusr2": "snapshot",
}  # fmt: skip


def signal_actions(effects: Mapping[str, str]) -> dict[int, Action]:
    """What each signal asks for, from names as in DEFAULT_EFFECTS; without those not known here."""
    return {
        int(getattr(signal, name.upper())): EFFECTS[effect]
        for name, effect in effects.items()
        if hasattr(signal, name.upper())
    }


class SignalRequests:
    """Between `with` and its end signals are kept; calling this gives the oldest one's action.

    It is a solver's `requested_action`. The first signal that means stop counts. After it Ctrl-C
    raises KeyboardInterrupt: a user who cannot wait for the end of an iteration need not. Others
    have no effect then: launchers and schedulers may both pass on the same request. Before the
    solver asks for the first time there is nothing to save, and Ctrl-C interrupts at once; so it
    does while kernels are compiled, which may take long, unless `unsaved`.
    """

    def __init__(self, actions: Mapping[int, Action]) -> None:
        self._actions = dict(actions)
        self._pending: deque[int] = deque()
        self._stopping = self._running = False
        self._before: dict[int, Any] = {}
        self.unsaved: Callable[[], bool] = lambda: True  # is there anything to save?
        self._gate = interrupted_if(lambda: self._stopping and not self.unsaved())

    def __enter__(self) -> SignalRequests:
        self._gate.__enter__()
        self._before = self.install()
        return self

    def install(self) -> dict[int, Any]:
        """Take the signals, again where a library has taken one since; returns who had them."""
        return {number: signal.signal(number, self._catch) for number in self._actions}

    def __exit__(self, *_: object) -> None:
        self._gate.__exit__(None, None, None)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        action = self._actions[number]
        if action is Action.STOP:
            loses_nothing = not self._running or (compiling() and not self.unsaved())
            if number == signal.SIGINT and (self._stopping or loses_nothing):
                raise KeyboardInterrupt
            if self._stopping:
                return
            self._stopping = True
            if compiling():
                log.warning("Stopping as asked, with a snapshot, when this kernel is compiled")
        if action is not Action.NONE:
            self._pending.append(number)

    def __call__(self) -> Action:
        self._running = True
        if not self._pending:
            return Action.NONE
        number = self._pending.popleft()
        action = self._actions[number]
        if action is Action.STOP:
            log.warning(
                "Stopping as %s asks; Ctrl-C now stops at once, without a snapshot",
                signal.Signals(number).name,
            )
        return action
