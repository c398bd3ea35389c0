"""The MPI library's own Allreduce."""

from __future__ import annotations

from collections.abc import Sequence

from ..tree import Node
from .base import COMMUNICATORS, RankCommunicator, merge_local


@COMMUNICATORS.register("mpi")
class LibraryCommunicator(RankCommunicator):
    """Whatever algorithm the library picks; the order of its sums is its own."""

    name = "mpi"
    canonical = False

    def sum_over_ranks(self, nodes: Sequence[Node]) -> None:
        from mpi4py import MPI

        request = self.comm.Iallreduce(MPI.IN_PLACE, merge_local(nodes), MPI.SUM)
        self.wait([request], [-1])
