"""How a solver runs, besides what its prototxt says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from .. import schema
from ..backend.base import Backend
from ..data.bad_records import FAIL
from ..layers import Context
from ..net import Net
from ..parallel.communicator import Communicator, SerialCommunicator
from ..parallel.interconnect import Job
from ..schema.proto import NetState
from .events import Observer


class Action(Enum):
    """What the outside (a signal) may ask of a running solver."""

    NONE, STOP, SNAPSHOT = range(3)


def nothing() -> Action:
    """Where nothing is asked for."""
    return Action.NONE


@dataclass(frozen=True)
class SolverOptions:
    """Where a solver computes, with whom, and who looks on. Nothing here is process-wide.

    The global batch is cut into `leaves` leaves, summed over the communicator's ranks. `keep`
    snapshots stay (None: all); `keep_best` names the test output whose best weights stay besides,
    and `stop_after` tests without a better one end the run. `job` says what all ranks run on, and
    `notes` what flags have made of the prototxt's settings, both for the record. With `timeline`,
    on all ranks alike, one iteration is recorded.
    """

    backend: Backend
    seed: int
    communicator: Communicator = field(default_factory=SerialCommunicator)
    leaves: int = 1
    level: int | None = None
    stages: Sequence[str] = ()
    share_gradients: bool = False
    on_nan: str = "stop"
    bad_records: str = FAIL
    python_modules: bool = False
    output_folder: str = ""
    ignore_mismatch: bool = False
    allow_empty_weights: bool = False
    cuda_graph: bool | None = False  # None: where it can be
    keep: int | None = None
    keep_best: str | None = None
    stop_after: int | None = None
    job: Job = field(default_factory=Job)
    notes: Sequence[str] = ()
    timeline: bool = False
    observers: Sequence[Observer] = ()
    requested_action: Callable[[], Action] = nothing
    make_net: Callable[..., Net] = Net


def net_state(options: SolverOptions) -> NetState:
    """The level and stages that the training net is filtered by."""
    state = schema.NetState(stage=list(options.stages))
    if options.level is not None:  # else the solver's train_state decides
        state.level = options.level
    return state


def net_context(options: SolverOptions, iter_size: int = 1) -> Context:
    """Where a new net of the run stands; one that trains on leaves is told which."""
    return Context(
        options.seed, iter_size=iter_size, bad_records=options.bad_records,
        python_modules=options.python_modules,
        output_folder=options.output_folder, host_ranks=options.communicator.local_size,
    )  # fmt: skip
