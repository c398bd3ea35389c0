"""pycaffe's init_log and log: Caffe's log lines on standard error."""

from __future__ import annotations

import logging
import os

from ..errors import FireError
from ..report.glog import LOGGER, stderr_handler

_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)  # glog's 0 to 3


def init_log(level: int = 0) -> None:
    """Log to standard error from this level on: 0 all, 1 warnings, 2 errors, 3 nothing else."""
    if not 0 <= level < len(_LEVELS):
        raise FireError(f"init_log takes a level from 0 to {len(_LEVELS) - 1}, got {level}")
    if not LOGGER.handlers:
        LOGGER.addHandler(stderr_handler())
        LOGGER.propagate = False
    LOGGER.setLevel(_LEVELS[level])


def log(text: str) -> None:
    """A line in Caffe's log."""
    LOGGER.info("%s", text, stacklevel=2)


def log_as_caffe() -> None:
    """What scripts expect of `import caffe`: all is logged unless GLOG_minloglevel says less."""
    level = os.environ.get("GLOG_minloglevel", "")  # noqa: SIM112 (glog's own spelling)
    if not LOGGER.handlers and LOGGER.level == logging.NOTSET:
        init_log(min(int(level), len(_LEVELS) - 1) if level.isdecimal() else 0)
