"""pycaffe's init_log and log: Caffe's log lines on standard error."""

from __future__ import annotations

import logging

from ..errors import FireError
from ..report.glog import LEVELS, LOGGER, least_level, stderr_handler


def init_log(level: int = 0) -> None:
    """Log to standard error from this level on: 0 all, 1 warnings, 2 errors, 3 nothing else."""
    if not 0 <= level < len(LEVELS):
        raise FireError(f"init_log takes a level from 0 to {len(LEVELS) - 1}, got {level}")
    if not LOGGER.handlers:
        LOGGER.addHandler(stderr_handler())
        LOGGER.propagate = False
    LOGGER.setLevel(LEVELS[level])


def log(text: str) -> None:
    """A line in Caffe's log."""
    LOGGER.info("%s", text, stacklevel=2)


def log_as_caffe() -> None:
    """What scripts expect of `import caffe`: all is logged unless GLOG_minloglevel says less."""
    if not LOGGER.handlers and LOGGER.level == logging.NOTSET:
        init_log(LEVELS.index(least_level()))
