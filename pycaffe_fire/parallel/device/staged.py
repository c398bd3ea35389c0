"""Sums over ranks of gradients that lie on a device: through host memory, slice by slice."""

from __future__ import annotations

from collections.abc import Sequence

from ...backend.base import Backend
from ...backend.tensor import Array
from ..communicator import Communicator
from ..tree import Node
from .base import DeviceCommunicator


class Staged(DeviceCommunicator):
    """Hands host copies to another communicator and brings the sums back.

    Slices travel on the backend's own stream, to and from pinned buffers, while backward goes on.
    It asks nothing of the MPI library, so it works everywhere.
    """

    def __init__(self, inner: Communicator, backend: Backend) -> None:
        super().__init__(inner, backend)
        self._sums: list[tuple[Array, Array]] = []  # on the host, on the device

    def start(self, nodes: Sequence[Node]) -> None:
        copies = [Node(n.first, n.size, self._backend.download(n.sum)) for n in nodes]
        self._sums.append((copies[0].sum, nodes[0].sum))
        self._inner.start(copies)

    def advance(self) -> None:
        self._inner.advance()

    @property
    def under_way(self) -> int:
        return self._inner.under_way

    def finish(self) -> None:
        self._inner.finish()
        sums, self._sums = self._sums, []
        self._backend.bring_back(sums)

    def describe(self) -> str:
        return f"{self._inner.describe()}, through host memory"
