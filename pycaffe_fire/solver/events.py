"""What happens in a run, for whoever wants to show or record it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..parallel.leaves import Output


@dataclass
class Started:
    """A run begins (or goes on) at an iteration."""

    name: str
    param: Any
    iteration: int
    batch: int
    leaves: int
    backend: str


@dataclass
class Trained:
    """An iteration is done; `outputs` are there at display intervals only."""

    iteration: int
    loss: float
    rate: float
    seconds: float
    display: bool
    outputs: list[Output]


@dataclass
class Testing:
    """A test net is about to run."""

    iteration: int
    net: int


@dataclass
class Tested:
    """A test net has run; outputs are averages over its test_iter passes."""

    iteration: int
    net: int
    outputs: list[Output]
    loss: float | None


@dataclass
class Saved:
    """A snapshot file is complete."""

    path: str
    what: str
    format: str


@dataclass
class Finished:
    """The run is over; `loss` is computed once more if the last iteration is to be displayed."""

    iteration: int
    early: bool
    loss: float | None


Event = Started | Trained | Testing | Tested | Saved | Finished
Observer = Callable[[Event], None]
