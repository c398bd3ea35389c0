"""A run's JSON log, read as it grows: what was read once is kept as an index and not read again."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import FireError
from ..report.runs import Clock, Point, Run, take_event
from .files import iteration_of
from .series import Series, View

CHUNK = 1 << 22  # bytes that are read at a time
MOST_TIMED, MOST_HISTOGRAMS, MOST_EVENTS = 512, 200, 1000
TAIL = 200  # lines
TIMES = ("compute", "data", "exposed", "hidden", "update")
NOTED = ("started", "saved", "notfinite", "finished")


@dataclass
class FollowedRun(Run):
    """A run whose curves may have millions of points."""

    curves: dict[str, Series] = field(default_factory=dict)

    def add(self, name: str, iteration: int, seconds: float, value: float | None) -> None:
        if value is None:
            return
        series = self.curves.get(name)
        if series is None:
            series = self.curves[name] = Series()
        series.add(iteration, seconds, value)

    def ending(self) -> Run:
        """The same run with only the last point of every curve."""
        points = {name: [Point(*series.last)] for name, series in self.curves.items()}
        return Run(
            self.name, points, self.started, self.profile, self.troubles, self.timeline,
            self.finished,
        )  # fmt: skip


class RunLog:
    """One log file and the index of what was read of it. Callers hold `lock` while they look.

    `behind` says that there is more to read than one refresh took; `version` counts changes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.version = 0
        self.behind = False
        self._identity: tuple[int, int] | None = None
        self._reset()

    def _reset(self) -> None:
        name = os.path.basename(self.path).removesuffix("_log.jsonl")
        self.run = FollowedRun(name)
        self.events: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self.timed: list[dict[str, Any]] = []
        self.histograms: list[dict[str, Any]] = []
        self.tail: deque[dict[str, Any]] = deque(maxlen=TAIL)
        self.last_time = 0.0
        self.iteration = 0
        self.skipped = 0
        self._clock = Clock()
        self._offset = 0
        self._rest = b""

    def refresh(self, seconds: float = 1.0) -> bool:
        """Read what is new, for at most about so many seconds; did anything change?"""
        try:
            with open(self.path, "rb") as file, self.lock:
                stat = os.fstat(file.fileno())
                if (stat.st_dev, stat.st_ino) != self._identity or stat.st_size < self._offset:
                    self._reset()
                    self._identity = (stat.st_dev, stat.st_ino)
                return self._read(file, stat.st_size, time.monotonic() + seconds)
        except OSError:  # gone, or not ours to read: what we know stays
            self.behind = False
            return False

    def _read(self, file: Any, size: int, until: float) -> bool:
        if size == self._offset:
            return False
        file.seek(self._offset)
        while self._offset < size:
            data = file.read(min(CHUNK, size - self._offset))
            self._offset += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for event in parse_lines(lines):
                self._take(event)
            if time.monotonic() > until or not data:
                break
        self.behind = self._offset < size
        self.version += 1
        return True

    def _take(self, event: dict[str, Any]) -> None:
        kind = event.get("event")
        try:
            take_event(self.run, event, self._clock)
            self.last_time = float(event["time"])
            if kind == "timed":
                self._take_times(event)
            elif kind == "histograms":
                self._keep(self.histograms, event, MOST_HISTOGRAMS)
            elif kind in ("trained", "tested", "evaluated", "finished"):
                self.iteration = int(event["iteration"])
            if kind in NOTED:
                self.events.append(self._noted(event))
        except (FireError, KeyError, TypeError, ValueError, AttributeError, IndexError):
            return  # not an event of ours: a page about the rest is better than none
        self.tail.append(event)

    def _noted(self, event: dict[str, Any]) -> dict[str, Any]:
        kept = ("event", "time", "iteration", "what", "done", "path", "format", "early", "ranks")
        noted = {key: event[key] for key in kept if key in event}
        if "path" in noted:
            noted["path"] = os.path.basename(noted["path"])
            if iteration_of(noted["path"]) >= 0:
                noted["iteration"] = iteration_of(noted["path"])
        noted.setdefault("iteration", self.iteration)
        return noted

    def _take_times(self, event: dict[str, Any]) -> None:
        ranks = [[float(rank[name]) for name in TIMES] for rank in event["ranks"]]
        self.skipped = sum(event.get("skipped", []))
        entry = {
            "iteration": event["iteration"], "ranks": np.array(ranks),
            "memory": event.get("memory", []),
        }  # fmt: skip
        self.timed.append(entry)
        if len(self.timed) > MOST_TIMED:  # neighbours become one
            pairs = zip(self.timed[::2], self.timed[1::2], strict=False)
            self.timed = [_merged(a, b) for a, b in pairs] + self.timed[len(self.timed) // 2 * 2 :]

    @staticmethod
    def _keep(entries: list[dict[str, Any]], event: dict[str, Any], most: int) -> None:
        entries.append(event)
        if len(entries) > most:
            del entries[1::2]

    def curve(self, name: str, view: View) -> dict[str, list[float]] | None:
        """The points of a curve for a chart; None if there is no such curve."""
        with self.lock:
            series = self.run.curves.get(name)
            return series.view(view) if series is not None else None


def _merged(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    if a["ranks"].shape != b["ranks"].shape:  # the run went on with other ranks
        return b
    return {**b, "ranks": a["ranks"] + b["ranks"]}


def parse_lines(lines: list[bytes]) -> list[dict[str, Any]]:
    """The events in complete lines; what is not one is passed over."""
    try:  # all at once takes half the time
        found = json.loads(b"[" + b",".join(line for line in lines if line.strip()) + b"]")
    except ValueError:
        found = [_parsed(line) for line in lines]
    return [event for event in found if isinstance(event, dict) and "event" in event]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def brief(event: dict[str, Any]) -> str:
    """An event as a line to read; nothing, if it is not one of ours."""
    try:
        return _brief(event)
    except (KeyError, TypeError, ValueError, AttributeError):
        return ""


def _brief(event: dict[str, Any]) -> str:
    when = time.strftime("%H:%M:%S", time.localtime(float(event["time"])))
    kind = event["event"]
    if kind == "started":
        where = f"at iteration {event['iteration']}" if event["iteration"] else "from the start"
        return f"{when} started {event['name']} {where}, {event['backend']}"
    if kind == "timed":
        parts = [f"{sum(rank[n] for n in TIMES[:3]):.3g} s" for rank in event["ranks"][:8]]
        return f"{when} timed at {event['iteration']}: {', '.join(parts)}"
    if kind == "saved":
        return f"{when} saved {event['path']}"
    if kind in ("histograms", "profiled", "timeline"):
        return f"{when} {kind} at {event['iteration']}"
    shown = {**event, **event.get("outputs", {})}
    skip = ("event", "time", "outputs")
    parts = [f"{k} = {_short(v)}" for k, v in shown.items() if k not in skip and v is not None]
    return f"{when} {kind}: {', '.join(parts[:12])}"


def _short(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)[:300]
