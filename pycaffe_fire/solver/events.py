"""What happens in a run, for code that shows or records it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..net.summary import NetFacts
from ..net.timing import LayerTimes
from ..parallel.interconnect import Job
from ..parallel.leaves import Output
from ..schema.proto import SolverParameter
from .evaluation import Precisions
from .timeline import Span
from .timing import Times


@dataclass
class Started:
    """A run begins (or goes on) at an iteration."""

    name: str
    param: SolverParameter
    iteration: int
    batch: int
    leaves: int
    backend: str
    seed: int
    ranks: int = 1
    communicator: str = ""
    train: NetFacts | None = None
    tests: list[NetFacts] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)  # bytes that one rank plans with
    job: Job = field(default_factory=Job)
    notes: list[str] = field(default_factory=list)  # on what flags have made of the settings


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
class Timed:
    """Where time went since the last display, on every rank; the bytes of memory that each has,
    and the records that it skipped so far."""

    iteration: int
    ranks: list[Times]
    memory: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)


@dataclass
class Timeline:
    """What every rank did when in one iteration, once per run; the ranks' hosts."""

    iteration: int
    ranks: list[list[Span]]
    hosts: list[str]


@dataclass
class Histogram:
    """Counts in equal bins from `low` to `high`."""

    low: float
    high: float
    counts: list[int]


@dataclass
class ParameterHistograms:
    """Of a sample of one parameter; `update_ratio` is |update| / |weights|."""

    name: str
    weights: Histogram
    gradients: Histogram
    update_ratio: float


@dataclass
class Histograms:
    """How the parameters are spread after an update, now and then."""

    iteration: int
    parameters: list[ParameterHistograms]


@dataclass
class Profiled:
    """How long the layers of this rank's first net take, once per run."""

    iteration: int
    layers: list[LayerTimes]


@dataclass
class Testing:
    """A test net is about to run pass number `done` of its `passes`."""

    iteration: int
    net: int
    done: int
    passes: int


@dataclass
class Tested:
    """A test net has run; outputs are averages over its test_iter passes, or average precisions
    of detections, `classes` then those of single classes if they are to be shown."""

    iteration: int
    net: int
    outputs: list[Output]
    loss: float | None
    classes: list[Precisions] = field(default_factory=list)


@dataclass
class Saved:
    """A snapshot file is complete."""

    path: str
    what: str
    format: str


@dataclass
class Evaluated:
    """The loss after the last update, where that iteration is to be displayed."""

    iteration: int
    loss: float


@dataclass
class NotFinite:
    """NaN or infinity turned up: what and where, and what was done about it."""

    iteration: int
    what: str
    done: str


@dataclass
class Finished:
    """The run is over, before max_iter if that was asked for."""

    iteration: int
    early: bool


Event = (
    Started
    | Trained
    | Timed
    | Timeline
    | Histograms
    | Profiled
    | Testing
    | Tested
    | Saved
    | Evaluated
    | NotFinite
    | Finished
)
Observer = Callable[[Event], None]
