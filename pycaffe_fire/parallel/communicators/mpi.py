"""The MPI library's own Allreduce."""

from __future__ import annotations

from collections.abc import Sequence

from ..tree import Node
from .base import COMMUNICATORS, RankCommunicator, Steps, merge_local
from .channel import Channel, Message


@COMMUNICATORS.register("mpi")
class LibraryCommunicator(RankCommunicator):
    """Whatever algorithm the library picks; the order of its sums is its own."""

    name = "mpi"
    canonical = False
    takes_devices = False  # few libraries reduce device memory without blocking

    def steps(self, nodes: Sequence[Node], channel: Channel) -> Steps:
        from mpi4py import MPI

        total = merge_local(nodes, channel.add)
        yield [Message(self.comm.Iallreduce(MPI.IN_PLACE, total, MPI.SUM), -1, total)]
