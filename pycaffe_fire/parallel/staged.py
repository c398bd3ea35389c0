"""Sums over ranks of gradients that lie on a device: through host memory, slice by slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend.base import Backend
from ..backend.tensor import Array
from .communicator import Communicator
from .tree import Node


class Staged(Communicator):
    """Hands host copies to another communicator and brings the sums back.

    Slices travel on the backend's own stream while backward goes on. MPI libraries that read
    device memory themselves are rare, so nothing is expected of them.
    """

    def __init__(self, inner: Communicator, backend: Backend) -> None:
        self._inner, self._backend = inner, backend
        self.name, self.rank, self.size = inner.name, inner.rank, inner.size
        self._sums: list[tuple[Array, Array]] = []  # on the host, on the device

    @property
    def local_size(self) -> int:
        return self._inner.local_size

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

    def gather(self, value: Any) -> list[Any]:
        return self._inner.gather(value)

    def gather_leaves(self, values: Sequence[float]) -> list[float]:
        """Numbers that are still on the device are read here: others wait for them."""
        return self._inner.gather_leaves([float(value) for value in values])

    def broadcast(self, value: Any) -> Any:
        return self._inner.broadcast(value)

    def abort(self) -> None:
        self._inner.abort()

    def at(self, what: str, seconds: float | None = None) -> None:
        self._inner.at(what, seconds)

    def describe(self) -> str:
        return f"{self._inner.describe()}, through host memory"
