"""What the events of a JSON log hold. A log is checked against it once, where it is read, so that
whatever draws or prints a run need not ask again."""

from __future__ import annotations

import math
from typing import Any

_MOST, _LARGEST = 2**63, 1e38  # of whole numbers, and of others
NUMBER, WHOLE, TEXT, FLAG = "a number", "a whole number", "a text", "true or false"


class Maybe:
    """The same shape, or null; with `absent` also nothing at all."""

    def __init__(self, shape: Any, absent: bool = False) -> None:
        self.shape, self.absent = shape, absent


class Named:
    """Any names, each with the same shape."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape


_LAYER = {
    "name": TEXT, "type": TEXT, "tops": [[WHOLE]], "parameters": WHOLE, "memory": WHOLE,
    "multiply_adds": WHOLE,
}  # fmt: skip
_DATA = {"source": TEXT, "records": Maybe(WHOLE), "batch": WHOLE, "transform": TEXT}
_NET = {"layers": [_LAYER], "data": [_DATA], "prototxt": TEXT}
_HARDWARE = {
    "host": TEXT, "system": TEXT, "processor": TEXT, "cores": WHOLE, "memory_bytes": WHOLE
}  # fmt: skip
_JOB = {
    "hosts": [
        {
            "name": TEXT, "ranks": WHOLE, "devices": [TEXT], "processor": TEXT, "cores": WHOLE,
            "memory_bytes": WHOLE,
        }
    ],
    "links": [{"where": TEXT, "ranks": [WHOLE], "latency": NUMBER, "bandwidth": NUMBER}],
}  # fmt: skip
_STAMP = {"event": TEXT, "time": NUMBER}
_AT = {**_STAMP, "iteration": WHOLE}
_SPAN = {"lane": TEXT, "kind": TEXT, "start": NUMBER, "stop": NUMBER}
_TIMES = {"name": TEXT, "forward": NUMBER, "backward": NUMBER, "inside": Maybe(TEXT)}

EVENTS: dict[str, Any] = {
    "started": {
        **_STAMP, "name": Maybe(TEXT, absent=True),
        "iteration": Maybe(WHOLE, absent=True),
        "solver": {
            "type": Maybe(TEXT, absent=True), "test_iter": Maybe([WHOLE], absent=True),
            "test_interval": Maybe(WHOLE, absent=True),
        },
        "batch": WHOLE, "leaves": WHOLE, "ranks": WHOLE, "communicator": TEXT, "backend": TEXT,
        "seed": WHOLE, "train": Maybe(_NET), "tests": [_NET], "hardware": _HARDWARE,
        "versions": Named(TEXT), "job": Maybe(_JOB, absent=True),
        "notes": Maybe([TEXT], absent=True),
    },
    "trained": {
        **_AT, "loss": Maybe(NUMBER), "rate": Maybe(NUMBER), "images_per_second": Maybe(NUMBER),
        "outputs": Named(Maybe(NUMBER)),
    },
    "tested": {**_AT, "net": WHOLE, "outputs": Named(Maybe(NUMBER))},
    "timeline": {**_AT, "ranks": [[_SPAN]], "hosts": [TEXT]},
    "profiled": {**_STAMP, "layers": [_TIMES]},
    "notfinite": {**_AT, "what": TEXT, "done": TEXT},
    "finished": {**_AT, "early": FLAG},
}  # fmt: skip


def flaw(event: dict[str, Any]) -> str:
    """What is wrong with an event, or nothing; kinds that are not known are right."""
    shape = EVENTS.get(event["event"]) if isinstance(event["event"], str) else {"event": TEXT}
    return "" if shape is None else _flaw(event, shape, "")


def _flaw(value: Any, shape: Any, name: str) -> str:
    if isinstance(shape, Maybe):
        return "" if value is None else _flaw(value, shape.shape, name)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{name or 'it'} is not an object"
        absent = (key for key in shape if key not in value and not _may_be_absent(shape[key]))
        if (missing := next(absent, None)) is not None:
            return f"{name}.{missing}".removeprefix(".") + " is missing"
        flaws = (_flaw(value.get(key), each, f"{name}.{key}") for key, each in shape.items())
    elif isinstance(shape, Named):
        if not isinstance(value, dict):
            return f"{name} is not an object"
        flaws = (_flaw(each, shape.shape, f"{name}.{key}") for key, each in value.items())
    elif isinstance(shape, list):
        if not isinstance(value, list):
            return f"{name} is not a list"
        flaws = (_flaw(each, shape[0], f"{name}[{i}]") for i, each in enumerate(value))
    else:
        return "" if _is(value, shape) else f"{name.removeprefix('.')} is not {shape}"
    return next(filter(None, flaws), "")


def _may_be_absent(shape: Any) -> bool:
    return isinstance(shape, Maybe) and shape.absent


def _is(value: Any, kind: str) -> bool:
    if kind in (TEXT, FLAG):
        return isinstance(value, str if kind == TEXT else bool)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if kind == WHOLE:
        return isinstance(value, int) and abs(value) < _MOST
    return abs(value) < _LARGEST and not math.isnan(value)
