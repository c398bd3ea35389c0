"""Reading what runs have written: our JSON logs, Caffe's text logs, TensorBoard's event files.

Whatever the format, a run becomes series of (iteration, seconds since its start, value), called
"train/loss", "test/accuracy", "rate" and "images_per_second".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FireError
from .event_schema import EVENTS, flaw
from .glog_lines import OUTPUT, glog_lines
from .json_log import read_events
from .tensorboard import read_scalars

LOSS = re.compile(r"Iteration (\d+)(?: \([^)]*\))?, loss = (\S+)")
RATE = re.compile(r"Iteration (\d+), lr = (\S+)")
TESTING = re.compile(r"Iteration (\d+), Testing net \(#(\d+)\)")


class Point(NamedTuple):
    iteration: int
    seconds: float
    value: float


@dataclass
class Run:
    """One run; `started` and the rest are there for JSON logs only."""

    name: str
    series: dict[str, list[Point]] = field(default_factory=dict)
    started: dict[str, Any] = field(default_factory=dict)
    profile: list[dict[str, Any]] = field(default_factory=list)
    troubles: list[dict[str, Any]] = field(default_factory=list)
    timeline: dict[str, Any] = field(default_factory=dict)
    finished: dict[str, Any] | None = None

    @property
    def title(self) -> str:
        """The net's name, where the log knows it."""
        return str(self.started.get("name") or self.name)

    def add(self, name: str, iteration: int, seconds: float, value: float | None) -> None:
        """A point; where a run was resumed or rolled back, what it did again counts."""
        if value is None:
            return
        points = self.series.setdefault(name, [])
        while points and points[-1].iteration >= iteration:
            points.pop()
        points.append(Point(iteration, seconds, value))


def read_run(path: str) -> Run:
    """A log file, or a folder with one (or with several event files of TensorBoard's)."""
    files, run = _find(path), Run(_name(path))
    for file in files:
        _kind(file)(run, file)
    if not any(run.series.values()):
        raise FireError(
            f"{files[0]}: has no losses or test results in it; fire_plot reads JSON logs "
            f"(PREFIX_log.jsonl), Caffe's logs and TensorBoard event files"
        )
    return run


def _name(path: str) -> str:
    return (
        Path(path).resolve().name.removesuffix(".jsonl").removesuffix(".log").removesuffix("_log")
    )


def _find(path: str) -> list[str]:
    if not os.path.isdir(path):
        if not os.path.exists(path):
            raise FireError(f"{path}: no such file or folder; give a run's log")
        return [path]
    for pattern in ("*_log.jsonl", "*.tfevents.*", "*.log"):
        found = sorted(Path(path).glob(pattern), key=lambda file: file.stat().st_mtime)
        if found:
            return [str(file) for file in (found if "tfevents" in pattern else found[-1:])]
    raise FireError(f"{path}: holds no *_log.jsonl, no TensorBoard event file and no *.log")


def _kind(file: str) -> Callable[[Run, str], None]:
    if "tfevents" in os.path.basename(file):
        return _read_tensorboard
    try:
        with open(file, "rb") as opened:
            head = opened.read(1)
    except OSError as error:
        raise FireError(f"{file}: cannot be read: {error.strerror}") from error
    return _read_json if head == b"{" else _read_caffe


# JSON lines.


def _read_json(run: Run, file: str) -> None:
    clock = Clock()
    for event in read_events(file):
        try:
            take_event(run, event, clock)
        except FireError as error:
            raise FireError(f"{file}: {error}") from None


def take_event(run: Run, event: dict[str, Any], clock: Clock) -> None:
    """Let an event of a JSON log into the run, if it is one that can have been written."""
    if wrong := flaw(event):
        raise FireError(f"not a log of fire_train's: in an event {event['event']!r:.40} {wrong}")
    if event["event"] not in EVENTS:
        return
    if event["event"] == "started":
        clock.start(event["time"])
    at, seconds = event.get("iteration") or 0, clock(event["time"])
    match event["event"]:
        case "started":
            run.started = event
            run.finished = None
        case "trained":
            run.add("train/loss", at, seconds, event["loss"])
            run.add("rate", at, seconds, event["rate"])
            run.add("images_per_second", at, seconds, event["images_per_second"])
            for name, value in event["outputs"].items():
                if name != "loss":
                    run.add(f"train/{name}", at, seconds, value)
        case "tested":
            for name, value in event["outputs"].items():
                run.add(f"{_test(event['net'])}/{name}", at, seconds, value)
        case "profiled":
            run.profile = event["layers"]
        case "timeline":
            run.timeline = event
        case "notfinite":
            run.troubles.append(event)
        case "finished":
            run.finished = {**event, "seconds": seconds}


class Clock:
    """Seconds of training: the pause before a run goes on does not count."""

    def __init__(self) -> None:
        self._zero: float | None = None
        self._stands = 0.0

    def start(self, when: float) -> None:
        self._zero = when - self._stands

    def __call__(self, when: float) -> float:
        if self._zero is None:
            self._zero = when
        self._stands = when - self._zero
        return self._stands


def _test(net: int) -> str:
    return "test" if net == 0 else f"test{net}"


# Caffe's logs.


def _read_caffe(run: Run, file: str) -> None:
    trained = tested = 0
    test, first = "test", None
    for when, text in glog_lines(file):
        first = first or when
        seconds = (when - first).total_seconds()
        if found := TESTING.match(text):
            tested, test = int(found[1]), _test(int(found[2]))
        elif found := RATE.match(text):
            run.add("rate", int(found[1]), seconds, _number(found[2]))
        elif found := LOSS.match(text):
            trained = int(found[1])
            run.add("train/loss", trained, seconds, _number(found[2]))
        elif found := OUTPUT.match(text):
            where, at = ("train", trained) if found[1] == "Train" else (test, tested)
            if (where, found[2]) != ("train", "loss"):
                run.add(f"{where}/{found[2]}", at, seconds, _number(found[3]))


def _number(text: str) -> float | None:
    """A finite number; nan and inf leave a gap."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


# TensorBoard.


def _read_tensorboard(run: Run, file: str) -> None:
    first: float | None = None
    for when, step, tag, value in read_scalars(file):
        first = when if first is None else first
        run.add(tag, step, when - first, _number(str(value)))
