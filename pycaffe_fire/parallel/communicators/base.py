"""What all communicators over MPI share: messages with a deadline, gathering, merging."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backend.tensor import Array
from ...errors import SolverError
from ...registry import Registry
from ..communicator import Communicator
from ..tree import Node, PartialSums
from .wire import WIRES

COMMUNICATORS: Registry[type[RankCommunicator]] = Registry("communicator", SolverError)

TAG = 7
FIRST_PATIENCE = 120.0  # seconds; the first iteration compiles and plans
PATIENCE = 20.0  # seconds beyond what iterations take


class PeerTimeout(SolverError):
    """Another rank did not answer in time."""


class RankCommunicator(Communicator):
    """Point-to-point messages of float32 slices over an MPI communicator."""

    canonical = True  # does the sum have the bits of the tree over leaves?

    def __init__(self, comm: Any, wire: str = "float32") -> None:
        self.comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.wire = WIRES[wire]()
        self.patience = FIRST_PATIENCE
        self.doing = "starting"  # for the message if this rank is the one that is missing
        self._scratch: dict[int, NDArray[Any]] = {}

    # The sum.

    def all_sum(self, nodes: Sequence[Node]) -> Array:
        if self.size > 1:
            self.sum_over_ranks(nodes)
        return nodes[0].sum

    def sum_over_ranks(self, nodes: Sequence[Node]) -> None:
        """Write the sum over all ranks over nodes[0].sum."""
        raise NotImplementedError

    def layout_of(self, nodes: Sequence[Node]) -> list[list[tuple[int, int]]]:
        """(first, size) of every rank's nodes; the same for all slices, so it is asked once."""
        own = [(n.first, n.size) for n in nodes]
        if not hasattr(self, "_layouts"):
            self._layouts: list[list[tuple[int, int]]] = self.comm.allgather(own)
        return self._layouts

    # Messages.

    def send(self, values: Array, peer: int) -> Any:
        """Start sending; the returned request keeps its message alive."""
        message = self.wire.encode(values)
        return self.comm.Isend(message, peer, TAG), message

    def receive(self, elements: int, peer: int, slot: int = 0) -> tuple[Any, NDArray[Any]]:
        """Start receiving into scratch memory number `slot`."""
        held = self._scratch.get(slot)
        if held is None or held.size < elements:
            held = self._scratch[slot] = np.empty(elements, self.wire.dtype)
        message = held[:elements]
        return self.comm.Irecv(message, peer, TAG), message

    def decoded(self, message: NDArray[Any]) -> Array:
        """A received message as float32 (the message itself if it is)."""
        if message.dtype == np.float32:
            return message
        values = np.empty(message.size, np.float32)
        self.wire.decode(message, values)
        return values

    def round(self, values: Array) -> None:
        """Round in place to what the others will receive, so that all ranks agree."""
        if self.wire.dtype != np.float32:
            self.wire.decode(self.wire.encode(values), values)

    def exchange(self, values: Array, peer: int, elements: int) -> Array:
        """Send to and receive from one peer at a time."""
        request, message = self.receive(elements, peer)
        sending, kept = self.send(values, peer)
        self.wait([request, sending], [peer, peer])
        del kept
        return self.decoded(message)

    def wait(self, requests: Sequence[Any], peers: Sequence[int]) -> None:
        """Wait for all requests, but not for ever: a silent peer is named."""
        left = dict(enumerate(requests))
        deadline = time.monotonic() + self.patience
        nap = 0.0
        while left:
            for i in [i for i, request in left.items() if request.Test()]:
                del left[i]
            if not left:
                return
            if time.monotonic() > deadline:
                silent = sorted({peers[i] for i in left})
                raise PeerTimeout(
                    f"rank {self.rank} on {socket.gethostname()}, {self.doing}: no answer from "
                    f"rank {', '.join(map(str, silent))} within {self.patience:.0f} s"
                )
            if nap > 2e-4:
                time.sleep(nap)
            nap = min(nap + 2e-5, 1e-3)

    # Everything else.

    def gather(self, value: Any) -> list[Any]:
        request_free: list[Any] = self.comm.allgather(value)
        return request_free

    def broadcast(self, value: Any) -> Any:
        return self.comm.bcast(value)


def merge_local(nodes: Sequence[Node]) -> Array:
    """All of a rank's nodes summed into the first, in order."""
    total = nodes[0].sum
    for node in nodes[1:]:
        np.add(total, node.sum, out=total)
    return total


def merge_tree(nodes: Sequence[Node]) -> Array:
    """The root of a complete set of nodes, summed in place in the canonical order."""
    sums = PartialSums(lambda a, b: np.add(a, b, out=a), lambda _: None)
    sums.extend(sorted(nodes, key=lambda n: n.first))
    (root,) = sums.nodes
    return root.sum


def segments(size: int, parts: int) -> list[slice]:
    """A range cut into nearly equal slices."""
    ends = [size * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in zip(ends, ends[1:], strict=False)]
