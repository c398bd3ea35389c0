"""Trials of plans: an empty folder for what they find, and a clock of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pycaffe_fire.backend import plan_choices


@pytest.fixture
def plan_trials() -> Iterator[Any]:
    """The module that makes trials, with nothing known before the test and after it."""
    pytest.importorskip("pycaffe_fire.backend.onednn")
    from pycaffe_fire.backend.onednn import plan_trials as trials

    trials._choices.cache_clear()
    yield trials
    trials._choices.cache_clear()


@pytest.fixture
def folder(plan_trials: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache folder."""
    place = tmp_path / "pycaffe_fire"
    monkeypatch.setattr(plan_choices, "cache_folder", lambda: place)
    return place


@pytest.fixture
def timed(plan_trials: Any, monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """What was timed; each is faster than the one before it."""
    tried: list[type] = []

    def seconds(plan: Any) -> float:
        tried.append(type(plan))
        return 1 / len(tried)

    monkeypatch.setattr(plan_trials, "_seconds", seconds)
    monkeypatch.setattr(plan_trials, "REPEATS", 1)
    return tried
