"""What the solver asks of a communicator, and the one for a process that is alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ..backend.tensor import Array
from .tree import Node, runs


class Communicator(ABC):
    """The ranks of a job. The solver is handed one and never asks whether it is distributed."""

    rank: int
    size: int

    def own_leaves(self, leaves: int) -> range:
        """The contiguous run of leaves this rank computes."""
        return runs(range(leaves), self.size)[self.rank]

    @abstractmethod
    def sum_gradients(self, nodes: Sequence[Node]) -> Array:
        """The root of the tree, on every rank, from the nodes this rank has."""

    @abstractmethod
    def gather_leaves(self, values: Sequence[float]) -> list[float]:
        """One number per leaf, in order of leaves, from the numbers of each rank's own leaves."""


class SerialCommunicator(Communicator):
    """A single process: nothing to send."""

    rank, size = 0, 1

    def sum_gradients(self, nodes: Sequence[Node]) -> Array:
        (root,) = nodes
        return root.sum

    def gather_leaves(self, values: Sequence[float]) -> list[float]:
        return list(values)
