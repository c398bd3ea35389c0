"""All runs below a folder: finding their logs, following them, and a row of a table for each."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from typing import Any

import numpy as np

from ..errors import FireError
from .follow import RunLog
from .series import Series

SCAN_SECONDS = 3.0  # between looks for new runs
SILENCE = 180.0  # seconds without a word after which a run on another host counts as ended
RECENT = 20  # displays that speed and time left are taken from
_LOW_IS_GOOD = ("loss", "error")


class Runs:
    """The runs below `folder`, by an identity that says nothing about their place."""

    def __init__(self, folder: str) -> None:
        self.folder = os.path.realpath(folder)
        if not os.path.isdir(self.folder):
            raise FireError(f"{folder}: no such folder; name one with runs in it")
        self._logs: dict[str, RunLog] = {}
        self._lock = threading.Lock()
        self._scanned = 0.0
        self._states: dict[str, str] = {}
        self.version = 0

    def refresh(self) -> bool:
        """Look for new runs and new lines; returns whether there is more to read right now."""
        with self._lock:
            if time.monotonic() - self._scanned > SCAN_SECONDS:
                self._scan()
                self._scanned = time.monotonic()
            changed = [log.refresh() for log in list(self._logs.values())]
            states = {key: state_of(log) for key, log in self._logs.items()}
            if any(changed) or states != self._states:
                self._states = states
                self.version += 1
            return any(log.behind for log in self._logs.values())

    def _scan(self) -> None:
        found = {}
        for folder, folders, files in os.walk(self.folder):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in files:
                path = os.path.join(folder, name)
                if name.endswith("_log.jsonl") and not os.path.islink(path):
                    found[self._identity(path)] = path
        for key in self._logs.keys() - found.keys():
            del self._logs[key]
        for key, path in sorted(found.items(), key=lambda item: item[1]):
            if key not in self._logs:
                self._logs[key] = RunLog(path)

    def _identity(self, path: str) -> str:
        relative = os.path.relpath(path, self.folder)
        return hashlib.sha256(relative.encode(errors="surrogateescape")).hexdigest()[:12]

    def __getitem__(self, key: str) -> RunLog:
        """Raises KeyError."""
        return self._logs[key]

    def versions(self) -> dict[str, tuple[int, str]]:
        """What tells whether a run's row is still as it was."""
        logs = list(self._logs.items())
        return {key: (log.version, self._states.get(key, "")) for key, log in logs}

    def rows(self, keys: list[str]) -> list[dict[str, Any]]:
        """Of those runs that are still there."""
        return [self.row(key) for key in keys if key in self._logs]

    def row(self, key: str) -> dict[str, Any]:
        log = self._logs[key]
        with log.lock:
            return {"id": key, "folder": self._place(log.path), **row_of(log)}

    def _place(self, path: str) -> str:
        return os.path.relpath(os.path.dirname(path), self.folder)


def state_of(log: RunLog) -> str:
    """running, done, stopped (early, as asked), failed, or ended (nobody said how)."""
    run = log.run
    if run.finished is not None:
        return "stopped" if run.finished.get("early") else "done"
    if log.events and log.events[-1].get("done") == "stopped":  # because of NaN
        return "failed"
    if not run.started:
        return "ended"
    return "running" if _alive(run.started, log.last_time) else "ended"


def _alive(started: dict[str, Any], last: float) -> bool:
    process = started.get("process")
    host = (started.get("hardware") or {}).get("host")
    if not isinstance(process, int) or host != socket.gethostname() or not os.path.isdir("/proc"):
        return time.time() - last < SILENCE
    try:  # a process that began after the run did is another one with the same number
        return os.stat(f"/proc/{process}").st_ctime < float(started["time"]) + 5
    except OSError:
        return False


def row_of(log: RunLog) -> dict[str, Any]:
    run, curves = log.run, log.run.curves
    started = run.started
    solver = started.get("solver") or {}
    state = state_of(log)
    loss = curves.get("train/loss")
    speed = curves.get("images_per_second")
    last = max((s.last for s in curves.values()), key=lambda point: point[1], default=(0, 0.0, 0.0))
    most = int(solver.get("max_iter", 0))
    return {
        "name": run.name,
        "net": str(started.get("name", "")),
        "state": state,
        "reading": log.behind,
        "iteration": log.iteration,
        "max_iter": most,
        "epoch": log.iteration * epoch_share(started),
        "loss": loss.last[2] if loss else None,
        "best": best_of(curves),
        "images_per_second": _median(speed) if speed else None,
        "seconds": run.finished["seconds"] if run.finished else last[1],
        "seconds_left": _left(log, most) if state == "running" else None,
        "ranks": int(started.get("ranks", 1)),
        "skipped": log.skipped,
        "troubles": len(run.troubles),
        "began": float(started.get("time", 0.0)),
        "curves": sorted(curves),
        "settings": settings_of(started),
        "version": log.version,
    }


def epoch_share(started: dict[str, Any]) -> float:
    """The part of its training data that a run sees in one iteration; 0 if nobody knows."""
    data = (started.get("train") or {}).get("data", [])
    records = next((d["records"] for d in data if d.get("records")), 0)
    return float(started.get("batch", 0)) / records if records else 0.0


def best_of(curves: dict[str, Series]) -> dict[str, Any] | None:
    """The best test result: of the first score, else of the first loss."""
    tests = [name for name in curves if name.startswith("test")]
    tests.sort(key=lambda name: (is_low_good(name), "acc" not in name.lower()))
    if not tests:
        return None
    iteration, value = curves[tests[0]].best(is_low_good(tests[0]))
    return {"name": tests[0], "value": value, "iteration": iteration}


def is_low_good(name: str) -> bool:
    return any(word in name.lower() for word in _LOW_IS_GOOD)


def _median(series: Series) -> float:
    return float(np.median(series.recent(RECENT)))


def _left(log: RunLog, most: int) -> float | None:
    loss = log.run.curves.get("train/loss")
    speed = loss.speed(RECENT) if loss else None
    return max(0.0, speed * (most - log.iteration)) if speed is not None else None


def settings_of(started: dict[str, Any]) -> dict[str, str]:
    """What somebody may have chosen, as texts: the solver's fields and how the run was started."""
    if not started:
        return {}
    names = ("batch", "leaves", "ranks", "communicator", "backend", "seed")
    chosen = {name: started.get(name) for name in names}
    solver = {k: v for k, v in (started.get("solver") or {}).items() if k != "snapshot_prefix"}
    return {name: _text(value) for name, value in {**solver, **chosen}.items() if value != ""}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
