"""Where in the training a net stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..backend.tensor import Array
from ..data.bad_records import FAIL


class LeafSums(Protocol):
    """What layers can ask of leaves that run at the same time; see parallel/lockstep.py."""

    active: bool  # do all leaves run just now?

    def sum(self, leaf: int, values: Array) -> Array: ...


class LeafFeeds(Protocol):
    """What layers are fed that only rank 0 can read; see parallel/feeding.py."""

    def announce(self, name: str, shapes: Any = None) -> Any: ...

    def take(self, name: str, step: int, leaf: int) -> list[Array] | None: ...


@dataclass
class Context:
    """Where in the training a net stands; layers that draw numbers or read records look here.

    A pass (`step`) is one forward over the global batch, cut into `leaves` leaves; this net runs
    the leaves of `own_leaves` in turn and stands at `leaf`.
    """

    seed: int = 0
    step: int = 0
    leaf: int = 0
    leaves: int = 1
    own_leaves: tuple[int, ...] = (0,)
    iter_size: int = 1
    bad_records: str = FAIL  # or SKIP: what a record that cannot be used does
    python_modules: bool = False  # may a prototxt import the module of a Python layer?
    images: int = 1  # that the data layers feed in one leaf of a pass
    output_folder: str = ""  # where layers may write, besides the working directory
    collects: bool = False  # does a test collect what passes leave to be written (`findings`)?
    host_ranks: int = 1  # of this run on this host, which share its memory
    lockstep: LeafSums | None = None  # where all leaves run at the same time
    feeds: LeafFeeds | None = None  # where the batch is cut into leaves

    def on_leaves(self, own: Sequence[int], leaves: int) -> Context:
        """The same, for a net that runs these of all leaves."""
        return replace(self, leaf=own[0], leaves=leaves, own_leaves=tuple(own))
