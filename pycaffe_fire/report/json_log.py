"""A run as JSON lines beside its snapshots: one object per event, for programs and for fire_plot.

Every line is written and flushed at once, so a killed run leaves at most one half line, which the
reader passes over and a resumed run ends before it goes on.
"""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import asdict
from typing import Any

from google.protobuf import json_format

from ..backend.hardware import hardware, versions
from ..errors import FireError
from ..parallel.leaves import Output
from ..solver.events import (
    Evaluated,
    Event,
    Finished,
    Histograms,
    NotFinite,
    Profiled,
    Saved,
    Started,
    Tested,
    Timed,
    Timeline,
    Trained,
)
from .log_file import LogFile, Speed
from .timeline import outline

NET_FIELDS = ("net_param", "train_net_param", "test_net_param")  # recorded as nets, not here


def log_path(prefix: str) -> str:
    """The log of the run whose snapshots are called PREFIX_iter_N."""
    return f"{prefix}_log.jsonl"


class JsonLog:
    """An observer that appends a run's events to a file."""

    def __init__(self, path: str) -> None:
        self._file = LogFile(path)
        self._speed = Speed()

    def __call__(self, event: Event) -> None:
        record = self._record(event)
        if record is not None:
            stamped = {"event": type(event).__name__.lower(), "time": time.time(), **record}
            self._file.write(json.dumps(plain(stamped), allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        self._file.close()

    def _record(self, event: Event) -> dict[str, Any] | None:
        match event:
            case Started():
                self._speed.batch = event.batch
                if self._file.open() not in (b"", b"\n"):  # half a line
                    self._file.write(b"\n")
                return _start(event)
            case Trained():
                return self._trained(event)
            case Timed():
                return asdict(event)
            case Timeline():
                return {
                    "iteration": event.iteration, "hosts": event.hosts,
                    "ranks": _shortened([outline(spans) for spans in event.ranks]),
                }  # fmt: skip
            case Tested():
                return {
                    "iteration": event.iteration,
                    "net": event.net,
                    "loss": event.loss,
                    "outputs": output_values(event.outputs),
                }
            case Profiled():
                return asdict(event)
            case Histograms():
                return {key: _shortened(value) for key, value in asdict(event).items()}
            case Saved() | Evaluated() | NotFinite() | Finished():
                return vars(event)
        return None

    def _trained(self, event: Trained) -> dict[str, Any] | None:
        self._speed.add(event)
        if not event.display:
            return None
        return {
            "iteration": event.iteration,
            "loss": float(event.loss),
            "rate": event.rate,
            "images_per_second": self._speed.take(),
            "outputs": output_values(event.outputs),
        }


def _start(event: Started) -> dict[str, Any]:
    solver = type(event.param)()
    solver.CopyFrom(event.param)
    for name in NET_FIELDS:
        solver.ClearField(name)
    return {
        "name": event.name,
        "iteration": event.iteration,
        "solver": json_format.MessageToDict(solver, preserving_proto_field_name=True),
        "batch": event.batch,
        "leaves": event.leaves,
        "ranks": event.ranks,
        "communicator": event.communicator,
        "backend": event.backend,
        "seed": event.seed,
        "train": asdict(event.train) if event.train else None,
        "tests": [asdict(net) for net in event.tests],
        "memory": event.memory,
        "notes": event.notes,
        "job": asdict(event.job),
        "folder": os.getcwd(),
        "process": os.getpid(),
        "hardware": hardware(),
        "versions": versions(),
    }


def output_values(outputs: list[Output]) -> dict[str, float]:
    """By name; where a blob has several numbers, the others are called name[1], name[2], ..."""
    found: dict[str, float] = {}
    counts: dict[str, int] = {}
    for output in outputs:
        number = counts.get(output.name, 0)
        counts[output.name] = number + 1
        found[f"{output.name}[{number}]" if number else output.name] = output.value
    return found


def _shortened(value: Any) -> Any:
    """Six digits are enough for what is only looked at."""
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def plain(value: Any) -> Any:
    """What JSON can say: NaN and infinity are null."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def read_events(path: str) -> list[dict[str, Any]]:
    """All events of a log; lines that a killed run left incomplete are passed over."""
    events = []
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(record, dict) and "event" in record:
                    events.append(record)
    except OSError as error:
        raise FireError(f"{path}: cannot be read: {error.strerror}") from error
    return events
