"""What weights and state files hold, whatever their format."""

from __future__ import annotations

from dataclasses import dataclass, field

from .wire import Floats

NO_LOSS = 1e38  # what the forks' states hold before there is a loss


@dataclass
class LayerWeights:
    """One layer's parameter blobs, float32. HDF5 files give no type, and leave out blobs that
    belong to another layer: those are arrays of size 0. Diffs can be written, but are not read."""

    name: str
    type: str
    blobs: list[Floats]
    diffs: list[Floats] = field(default_factory=list)


@dataclass
class SolverStateFile:
    """What a .solverstate holds; `extra` is ours, and Caffe skips it."""

    iter: int
    learned_net: str
    history: list[Floats]
    current_step: int = 0
    extra: bytes = b""
    minimum_loss: float = NO_LOSS  # this and the next: of the forks' plateau policy
    iter_last_event: int = 0
