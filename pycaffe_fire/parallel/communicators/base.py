"""What all communicators over MPI share: sums under way, waiting with a deadline, merging."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...backend.tensor import Array, aligned
from ...errors import SolverError
from ...registry import Registry
from ..communicator import Communicator
from ..ending import abort
from ..tree import Node, PartialSums
from ..waiting import LONGEST_PATIENCE, Waiting
from .channel import Channel, Message
from .neighbours import Neighbours
from .wire import WIRES

COMMUNICATORS: Registry[type[RankCommunicator]] = Registry("communicator", SolverError)

FIRST_TAG, TAGS = 7, 1024

Steps = Iterator[list[Message]]  # a sum's messages; it goes on when those it yielded are complete


class RankCommunicator(Communicator):
    """Point-to-point messages of float32 slices over an MPI communicator."""

    canonical = True  # does the sum have the bits of the tree over leaves?
    flights = 8  # sums under way at once: one adds while another waits for its messages
    takes_devices = True  # can it sum arrays of a device, if the library reads such memory?

    def __init__(self, comm: Any, wire: str = "float32") -> None:
        self.comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.wire = WIRES[wire]()
        self.hosts: list[str] = comm.allgather(socket.gethostname())
        self.waiting = Waiting(self.hosts)
        self.neighbours: Neighbours | None = None  # where sums know to use what they share
        self._xp: Any = np
        self._wait: Callable[[], object] = lambda: None
        self._others: list[RankCommunicator] = []  # see `another`
        self._spare: list[Channel] = []
        self._started = 0
        self._flying: list[_Flight] = []

    @property
    def local_size(self) -> int:
        return self.hosts.count(self.hosts[self.rank])

    def use_device(self, xp: Any, wait: Callable[[], object]) -> None:
        """From now on slices are arrays of `xp`; `wait` waits for all work on them."""
        self._xp, self._wait = xp, wait
        self.neighbours = None

    # Sums.

    def steps(self, nodes: Sequence[Node], channel: Channel) -> Steps:
        """Write the sum over all ranks over nodes[0].sum, in steps between messages."""
        raise NotImplementedError

    def start(self, nodes: Sequence[Node]) -> None:
        """Begin a sum, after room was made for it; it goes on whenever a caller waits."""
        if self.size == 1:
            return
        while len(self._flying) >= self.flights:
            self.advance()
        channel = self._spare.pop() if self._spare else self._new_channel()
        # All ranks start their sums in the same order, so they agree on tags.
        channel.tag = FIRST_TAG + self._started % TAGS
        self._started += 1
        flight = _Flight(self.steps(nodes, channel), channel)
        self._flying.append(flight)
        self.waiting.moved()
        self._go_on(flight)

    def _new_channel(self) -> Channel:
        return Channel(self.comm, self.wire, self._xp, self._wait, self.neighbours)

    def buffer(self, elements: int) -> Array:
        shared = self.neighbours.zeros(elements) if self.neighbours is not None else None
        if shared is not None:
            return shared
        own = aligned(elements, np.dtype(np.float32))
        own[...] = 0
        return own

    @property
    def under_way(self) -> int:
        return len(self._flying)

    def advance(self) -> None:
        """Take every sum under way as far as it goes now; doze a little if none moved."""
        moving = [flight for flight in self._flying if flight.complete()]
        for flight in moving:
            self._go_on(flight)
        if moving:
            self.waiting.moved()
        elif self._flying:
            self.waiting.doze(lambda: (peer for flight in self._flying for peer in flight.silent()))

    def _go_on(self, flight: _Flight) -> None:
        if not flight.go_on():
            self._flying.remove(flight)
            self._spare.append(flight.channel)

    def layout_of(self, nodes: Sequence[Node]) -> list[list[tuple[int, int]]]:
        """(first, size) of every rank's nodes; the same for all slices, so it is asked once."""
        own = [(n.first, n.size) for n in nodes]
        if not hasattr(self, "_layouts"):
            self._layouts: list[list[tuple[int, int]]] = self.gather_now(own)
        return self._layouts

    def set_status(self, what: str, seconds: float | None = None) -> None:
        super().set_status(what)
        if seconds is not None:
            for each in (self, *self._others):
                each.waiting.iteration_took(seconds)

    def abort(self) -> None:
        abort()

    def another(self) -> Communicator:
        from mpi4py import MPI

        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise SolverError(
                "synchronised statistics need an MPI library that several threads may call, and "
                "this one does not let them; train without sync"
            )
        made = COMMUNICATORS["halving"](self.comm.Dup())
        self._others.append(made)
        return made

    # Everything else.

    def gather(self, value: Any) -> list[Any]:
        return self._gather(value, LONGEST_PATIENCE)

    def gather_now(self, value: Any) -> list[Any]:
        return self._gather(value, None)

    def _gather(self, value: Any, patience: float | None) -> list[Any]:
        own = np.frombuffer(pickle.dumps(value), np.uint8)
        lengths = np.empty(self.size, np.int64)
        self._await(self.comm.Iallgather(np.array([own.size]), lengths), patience)
        everything = np.empty(lengths.sum(), np.uint8)
        self._await(self.comm.Iallgatherv(own, [everything, lengths]), patience)
        return [
            pickle.loads(part.tobytes()) for part in np.split(everything, lengths.cumsum()[:-1])
        ]

    def scatter(self, values: Sequence[Any]) -> Any:
        contents = [np.frombuffer(pickle.dumps(value), np.uint8) for value in values]
        lengths = np.array([content.size for content in contents])
        length = np.empty(1, np.int64)
        first = self.rank == 0
        request = self.comm.Iscatter(lengths if first else None, length)
        self._await(request, LONGEST_PATIENCE)
        content = np.empty(length[0], np.uint8)
        everything = [np.concatenate(contents), lengths] if first else None
        self._await(self.comm.Iscatterv(everything, content), LONGEST_PATIENCE)
        return pickle.loads(content.tobytes())

    def broadcast(self, value: Any) -> Any:
        content = np.frombuffer(pickle.dumps(value), np.uint8)
        length = np.array([content.size])
        self._await(self.comm.Ibcast(length), LONGEST_PATIENCE)
        if self.rank:
            content = np.empty(length[0], np.uint8)
        self._await(self.comm.Ibcast(content), LONGEST_PATIENCE)
        return pickle.loads(content.tobytes())

    def _await(self, request: Any, patience: float | None) -> None:
        self.waiting.moved()
        while not request.Test():
            self.waiting.doze(patience=patience)


class _Flight:
    """A sum under way and the messages it waits for."""

    def __init__(self, steps: Steps, channel: Channel) -> None:
        self._steps, self.channel = steps, channel
        self._messages: list[Message] = []

    def complete(self) -> bool:
        self._messages = [m for m in self._messages if not m.complete()]
        return not self._messages

    def go_on(self) -> bool:
        """Run to the next messages; false if there are none left."""
        messages = next(self._steps, None)
        self._messages = messages or []
        return messages is not None

    def silent(self) -> list[int]:
        return [message.peer for message in self._messages]


Add = Callable[[Array, Array], None]


def merge_local(nodes: Sequence[Node], add: Add) -> Array:
    """All of a rank's nodes summed into the first, in order."""
    total = nodes[0].sum
    for node in nodes[1:]:
        add(total, node.sum)
    return total


def merge_tree(nodes: Sequence[Node], add: Add) -> Array:
    """The root of a complete set of nodes, summed in place in the canonical order."""
    ordered = sorted(nodes, key=lambda n: n.first)
    sums = PartialSums(ordered[-1].first + ordered[-1].size, add, lambda _: None)
    sums.extend(ordered)
    (root,) = sums.nodes
    return root.sum


def segments(size: int, parts: int) -> list[slice]:
    """A range cut into nearly equal slices."""
    ends = [size * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in zip(ends, ends[1:], strict=False)]
