"""`import caffe` is the drop-in of this checkout: `pythonpath` in pyproject.toml names it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pycaffe_fire.report.glog import LOGGER

_before = LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)
importlib.import_module("caffe")  # begins to log, which is not meant for other tests
LOGGER.level, LOGGER.propagate, LOGGER.handlers[:] = _before


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files are written to, and found in, a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GLOG_minloglevel", "1")
    return tmp_path


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The log is as it was after every test."""
    before = LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)
    yield
    LOGGER.level, LOGGER.propagate, LOGGER.handlers[:] = before
