"""The package's log in glog's form, which Caffe's users and log parsers know."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

LOGGER = logging.getLogger("pycaffe_fire")
DUMPS = logging.getLogger("pycaffe_fire.dumps")  # whole prototxts and nets, layer by layer
LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)  # glog's 0 to 3

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


def least_level() -> int:
    """What glog's environment variable GLOG_minloglevel says: 0 all, 1 warnings, 2 errors."""
    given = os.environ.get("GLOG_minloglevel", "")  # noqa: SIM112 (glog's own spelling)
    return LEVELS[min(int(given), len(LEVELS) - 1)] if given.isdecimal() else LEVELS[0]


@contextmanager
def logging_with(handler: logging.Handler, level: int, dumps: bool = True) -> Iterator[None]:
    """Send the package's log from `level` on to this handler alone, for a while.

    `dumps`: also whole prototxts and a net's every layer. GLOG_minloglevel may leave out more.
    """
    before = LOGGER.level, LOGGER.propagate, DUMPS.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(max(level, least_level()))
    LOGGER.propagate = False
    DUMPS.setLevel(logging.NOTSET if dumps else logging.WARNING)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before[0])
        LOGGER.propagate = before[1]
        DUMPS.setLevel(before[2])


def stderr_handler() -> logging.Handler:
    """Writes glog lines to standard error, as Caffe does."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(GlogFormatter())
    return handler
