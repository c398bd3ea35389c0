"""What a process says when a mapped database kills it: which one it was, and what to do.

A file that is cut short while it is mapped, or damaged where LMDB's library trusts it, ends the
process by a signal that no exception can replace. The handler runs in the thread that was hit,
writes one sentence and ends the process with status 1; other faults go on to whoever handled them
before.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_NAMES = {signal.SIGBUS: "was cut short while it was read", signal.SIGABRT: "is damaged"}
_SIGINFO = 4  # SA_SIGINFO of Linux
_ADDRESS_AT = 16  # where siginfo_t has the address of a fault, on 64 bits


class _Action(ctypes.Structure):
    """struct sigaction of Linux' C libraries on 64 bits."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_lock = threading.Lock()
_installed: dict[int, _Action] = {}  # what was there before
_kept: list[Any] = []  # the handler must live as long as it may be called


def speak_of(path_of: Callable[[Any], str | None]) -> None:
    """From now on a fault while reading ends with a sentence. `path_of` tells, for the `self` of
    a frame of the interrupted thread, which database it was reading, or None."""
    with _lock:
        if _installed or sys.platform != "linux" or sys.maxsize < 2**32:
            return
        library = ctypes.CDLL(None)

        def last_words(number: int, info: int, context: int) -> None:
            path = _interrupted(sys._getframe().f_back, path_of)
            if path is None and number == signal.SIGBUS:
                path = _mapped_at(ctypes.c_size_t.from_address(info + _ADDRESS_AT).value)
            if path is None:  # none of our business: as if we had not been there
                library.sigaction(number, ctypes.byref(_installed[number]), None)
                return
            what = _NAMES[signal.Signals(number)]
            text = (
                f"\npycaffe_fire: {path}: {what} ({signal.Signals(number).name}); look at it with "
                "fire_data check, copy it again or make it again\n"
            )
            os.write(2, text.encode(errors="surrogateescape"))
            os._exit(1)

        handler = _Handler(last_words)
        _kept.append(handler)
        for number in _NAMES:
            action, before = _Action(flags=_SIGINFO), _Action()
            action.handler = ctypes.cast(handler, ctypes.c_void_p)
            _installed[number] = before
            library.sigaction(number, ctypes.byref(action), ctypes.byref(before))


def _interrupted(frame: FrameType | None, path_of: Callable[[Any], str | None]) -> str | None:
    while frame is not None:
        path = path_of(frame.f_locals.get("self"))
        if path is not None:
            return path
        frame = frame.f_back
    return None


def _mapped_at(address: int) -> str | None:
    """The file that is mapped at an address."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            span, _, rest = line.partition(" ")
            low, high = (int(end, 16) for end in span.split("-"))
            if low <= address < high:
                fields = rest.split(None, 4)
                return fields[4].strip() if len(fields) == 5 else None
    return None


def mapped_range(path: str) -> tuple[int, int] | None:
    """The addresses at which this process has mapped a file; None where that cannot be known."""
    try:
        status = os.stat(path)
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.split(None, 5) for line in file]
    except OSError:
        return None
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    spans = [
        [int(end, 16) for end in fields[0].split("-")]
        for fields in lines
        if fields[4] == str(status.st_ino) and (fields[3] == device or len(fields) > 5)
    ]
    return (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
