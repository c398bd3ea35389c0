"""Ctrl-C between iterations, not in the middle of one: in a notebook one goes on afterwards."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupts:
    """Between `with` and its end the first Ctrl-C only sets `asked`; a second one interrupts.

    Where somebody else handles the signal, or outside the main thread, all stays as it is.
    """

    def __init__(self) -> None:
        self.asked = False
        self._ours = False

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()
        self._ours = main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._ours:
            signal.signal(signal.SIGINT, self._catch)
        return self

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.asked and kind is None:
            raise KeyboardInterrupt
