"""The package's log in glog's form, which Caffe's users and log parsers know."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

LOGGER = logging.getLogger("pycaffe_fire")

_LETTERS = {
    logging.WARNING: "W",
    logging.ERROR: "E",
    logging.CRITICAL: "F",
}


class GlogFormatter(logging.Formatter):
    """`I20261116 01:29:56.924711 16481 solver.py:45] message`"""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created)
        letter = _LETTERS.get(record.levelno, "I")
        place = f"{record.filename}:{record.lineno}"
        text = record.getMessage().removesuffix("\n")
        return f"{letter}{time:%Y%m%d %H:%M:%S.%f} {record.process or 0:5d} {place}] {text}"


@contextmanager
def logging_with(handler: logging.Handler, level: int) -> Iterator[None]:
    """Send the package's log from `level` on to this handler alone, for a while."""
    before = LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level)
    LOGGER.propagate = False
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before[0])
        LOGGER.propagate = before[1]


def stderr_handler() -> logging.Handler:
    """Writes glog lines to standard error, as Caffe does."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(GlogFormatter())
    return handler
