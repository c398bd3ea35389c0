"""Data that only rank 0 reads: batches of Python layers, which nobody can ask for a certain sample.

Before an iteration rank 0 runs such a layer for all leaves, in order, and gives every rank what its
leaves need: so leaves get the same data on any number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.tensor import Array
from ..layers import Layer
from .communicator import Communicator
from .tree import runs

Batch = list[Array]  # an array for each top


class Feeding:
    """What layers were given for the leaves of this rank, by layer, pass and leaf."""

    def __init__(self, communicator: Communicator, leaves: int) -> None:
        self._communicator, self._leaves = communicator, leaves
        self._announced: dict[str, Any] = {}
        self._batches: dict[tuple[str, int, int], Batch] = {}

    def announce(self, name: str, shapes: Any = None) -> Any:
        """What rank 0's first net says of a layer, to all nets; all build them in one order."""
        if name not in self._announced:
            self._announced[name] = self._communicator.broadcast(shapes)
        return self._announced[name]

    def take(self, name: str, step: int, leaf: int) -> Batch | None:
        """What a layer feeds into this leaf in this pass, if that was distributed."""
        return self._batches.get((name, step, leaf))

    def distribute(self, sources: Sequence[Layer], steps: Sequence[int]) -> None:
        """Let rank 0 run these layers for some passes; all ranks call it together."""
        ranks = self._communicator
        self._batches.clear()
        for source in sources:
            for step in steps:
                batches = source.produce(self._leaves) if ranks.rank == 0 else []
                shares = runs(range(self._leaves), ranks.size) if ranks.rank == 0 else []
                own = ranks.scatter([[batches[leaf] for leaf in share] for share in shares])
                for leaf, batch in zip(ranks.own_leaves(self._leaves), own, strict=True):
                    self._batches[source.name, step, leaf] = batch
