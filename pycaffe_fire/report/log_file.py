"""What the logs of a run share: a file that never ends the run, and the speed since a display."""

from __future__ import annotations

import logging
import os
from typing import IO

from ..errors import FireError
from ..solver.events import Trained

log = logging.getLogger("pycaffe_fire")


class LogFile:
    """A file that is appended to, complete after every write, and not there before `open`.

    That it cannot be opened is an error; that a disk is full later on is only a warning.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._file: IO[bytes] | None = None

    def open(self) -> bytes:
        """Returns the byte that the file ends with so far."""
        try:
            os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
            self._file = open(self.path, "ab+")  # noqa: SIM115
            end = self._file.tell()
            self._file.seek(max(0, end - 1))
            return self._file.read(1)
        except OSError as error:
            raise FireError(
                f"{self.path}: the log cannot be written: {error.strerror}; choose a folder that "
                "you may write to"
            ) from error

    def write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            log.warning("%s: the log ends here: %s", self.path, error.strerror)
            self._abandon()

    def _abandon(self) -> None:
        try:
            self.close()
        except OSError:  # what is left in its buffer cannot be written either
            self._file = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Speed:
    """Images per second between displays."""

    def __init__(self) -> None:
        self.batch = 0
        self._images = 0
        self._seconds = 0.0

    def add(self, event: Trained) -> None:
        self._images += self.batch
        self._seconds += event.seconds

    def take(self) -> float | None:
        """Since the last call; None if no time has passed."""
        speed = self._images / self._seconds if self._seconds else None
        self._images, self._seconds = 0, 0.0
        return speed
