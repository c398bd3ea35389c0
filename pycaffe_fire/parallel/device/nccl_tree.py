"""The canonical tree over NCCL: the bits of one process, at the traffic of a ring.

A slice is cut into a piece for each rank. Every rank is sent its piece of all ranks' nodes, adds
them up in the order of leaves by one kernel, in float32, and sends the sum to all: what travels is
twice the slice, less one piece each way, as in a ring. It asks nothing of the MPI library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend.tensor import FLOAT32, Array
from ..communicators import RankCommunicator
from ..communicators.base import segments
from ..tree import Node, merges
from .nccl import NcclCommunicator

if TYPE_CHECKING:
    from ...backend.cuda import CudaBackend

DTYPES: dict[str, Any] = {FLOAT32: np.float32, "float16": np.float16, "bfloat16": np.uint16}


class NcclTree(NcclCommunicator):
    """Pieces by NCCL's send and recv, sums by our kernel."""

    def __init__(self, inner: RankCommunicator, backend: CudaBackend) -> None:
        super().__init__(inner, backend)
        self._ranks = inner
        self._merges: Array | None = None  # after which row how many sums are due

    def _queue(self, nodes: Sequence[Node]) -> None:
        layouts = self._ranks.layout_of(nodes)
        senders = [rank for rank, layout in enumerate(layouts) for _ in layout]  # of every row
        total = nodes[0].sum
        parts = segments(total.size, self.size)
        own = parts[self.rank]
        length = own.stop - own.start
        rows = self._memory("rows", len(senders) * length, DTYPES[self._kind])
        self._api.groupStart()
        for values in self._packed(nodes):
            for rank, part in enumerate(parts):
                self._send(values[part], rank)
        for row, rank in enumerate(senders):
            self._receive(rows[row * length : (row + 1) * length], rank)
        self._api.groupEnd()
        if length:
            self._cuda.tree_sum(rows, self._merges_of(layouts), total[own])
        self._share(total, parts)

    def _packed(self, nodes: Sequence[Node]) -> list[Array]:
        """The nodes' sums as they travel."""
        if self._kind == FLOAT32:
            return [node.sum for node in nodes]
        size = nodes[0].sum.size
        packed = self._memory("packed", len(nodes) * size, DTYPES[self._kind])
        made = [packed[i * size : (i + 1) * size] for i in range(len(nodes))]
        for node, values in zip(nodes, made, strict=True):
            self._cuda.convert(node.sum, values)
        return made

    def _share(self, total: Array, parts: Sequence[slice]) -> None:
        """Every rank has one piece of the sum; then all of them have all."""
        values, own = total, parts[self.rank]
        if self._kind != FLOAT32:
            values = self._memory("packed", total.size, DTYPES[self._kind])
            self._cuda.convert(total[own], values[own])
        self._api.groupStart()
        for rank, part in enumerate(parts):
            if rank != self.rank:
                self._send(values[own], rank)
                self._receive(values[part], rank)
        self._api.groupEnd()
        if values is not total:
            self._cuda.convert(values, total)

    def _send(self, values: Array, rank: int) -> None:
        if values.size:
            kind = self._types[self._kind]
            self._group.send(values.data.ptr, values.size, kind, rank, self._stream)

    def _receive(self, place: Array, rank: int) -> None:
        if place.size:
            kind = self._types[self._kind]
            self._group.recv(place.data.ptr, place.size, kind, rank, self._stream)

    def _merges_of(self, layouts: Sequence[Sequence[tuple[int, int]]]) -> Array:
        if self._merges is None:
            places = [place for layout in layouts for place in layout]
            self._merges = self._cuda.xp.asarray(np.array(merges(places), np.int32))
        return self._merges

    def describe(self) -> str:
        return f"tree over nccl, {self.size} ranks{self._on_the_wire()}"
