"""What the solver asks of a communicator, and the one for a process that is alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from ..backend.tensor import Array
from ..errors import SolverError
from .tree import Node, runs


class Communicator(ABC):
    """The ranks of a job. The solver is handed one and never asks whether it is distributed."""

    name: str
    rank: int
    size: int
    doing = "starting"  # for the message if this rank fails
    wanted = ""  # the name that was asked for, if one was
    job = ""  # a random name that all its ranks know and no other job has
    trials: Mapping[str, float] = {}  # seconds of a sum by each candidate, where it was chosen so
    started_as = 0  # the rank's number as its launcher has it; see hosts.numbered_by_host

    def own_leaves(self, leaves: int) -> range:
        """The contiguous run of leaves this rank computes."""
        if leaves < self.size:
            raise SolverError(
                f"{self.size} ranks need at least {self.size} leaves, got --leaves {leaves}"
            )
        return runs(range(leaves), self.size)[self.rank]

    @property
    def local_size(self) -> int:
        """How many ranks run on this host."""
        return 1

    def buffer(self, elements: int) -> Array | None:
        """Zeros in memory of the host that suits sums, or None where any memory will do."""
        return None

    def all_sum(self, nodes: Sequence[Node]) -> Array:
        """The sum over all ranks' nodes, written over this rank's first node and returned.

        Every rank calls it with the nodes of its own leaves, for one slice of the gradients after
        the other. It may be called from one other thread than the rest.
        """
        self.start(nodes)
        self.finish()
        return nodes[0].sum

    @abstractmethod
    def start(self, nodes: Sequence[Node]) -> None:
        """Begin what `all_sum` does; the sum is complete after `finish`."""

    @abstractmethod
    def advance(self) -> None:
        """Let the sums under way go on, as far as they can or for a moment."""

    @property
    @abstractmethod
    def under_way(self) -> int:
        """How many sums were started and are not complete."""

    def finish(self) -> None:
        """Wait until no sum is under way."""
        while self.under_way:
            self.advance()

    def another(self) -> Communicator:
        """One over the same ranks with canonical sums, whose messages are apart from this one's."""
        return self

    @abstractmethod
    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in order of ranks, on every rank."""

    def gather_now(self, value: Any) -> list[Any]:
        """`gather` where all ranks come at about the same time: one that does not is missed."""
        return self.gather(value)

    @abstractmethod
    def scatter(self, values: Sequence[Any]) -> Any:
        """This rank's own of rank 0's values, one for each rank; others' values do not matter."""

    @abstractmethod
    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""

    def abort(self) -> None:
        """End all ranks of the job at once."""
        raise SystemExit(1)

    def set_status(self, what: str, seconds: float | None = None) -> None:
        """Note what this rank is doing, and how long its last iteration took."""
        self.doing = what

    def gather_leaves(self, values: Sequence[float]) -> list[float]:
        """One number per leaf, in order of leaves, from the numbers of each rank's own leaves."""
        return [v for part in self.gather_now(list(values)) for v in part]

    def describe(self) -> str:
        tried = sorted(self.trials.items(), key=lambda trial: trial[1])
        times = ", ".join(f"{name} {1e3 * seconds:.3g} ms" for name, seconds in tried)
        measured = f" (measured: {times})" if tried else ""
        return f"{self.name}, {self.size} ranks{measured}"


class SerialCommunicator(Communicator):
    """A single process: nothing to send."""

    name = "serial"
    rank, size = 0, 1

    under_way = 0

    def start(self, nodes: Sequence[Node]) -> None:
        """All leaves are here, so the tree is complete."""

    def advance(self) -> None:
        """Nothing is ever under way."""

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def scatter(self, values: Sequence[Any]) -> Any:
        return values[0]

    def broadcast(self, value: Any) -> Any:
        return value

    def describe(self) -> str:
        return "one process"
