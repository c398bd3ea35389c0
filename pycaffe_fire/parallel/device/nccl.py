"""Sums over ranks by NCCL, through CuPy. Never run on hardware: there was no GPU to run it on.

Slices are summed on a stream of their own while backward goes on on another. The order of NCCL's
sums is its own and depends on the number of ranks: unlike those of halving, tree and server, bits
of the result depend on it too. Gradients of 16 bits are exchanged piece by piece and added here, in
float32 and in order of ranks, because NCCL would round after every addition.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...backend.tensor import FLOAT32, Array
from ...errors import SolverError
from ..communicators import RankCommunicator
from ..tree import Node
from .base import DeviceCommunicator, Streams

if TYPE_CHECKING:
    from ...backend.cuda import CudaBackend


def load() -> Any:
    """CuPy's module for NCCL, with its library; else an ImportError with the reason."""
    nccl = importlib.import_module("cupy.cuda.nccl")
    if not nccl.available:
        raise ImportError(
            "CuPy finds no NCCL library (pip install nvidia-nccl-cu13, or nvidia-nccl-cu12)"
        )
    return nccl


class Nccl(DeviceCommunicator):
    """One NCCL communicator over all ranks of a job, one device each."""

    def __init__(self, inner: RankCommunicator, backend: CudaBackend) -> None:
        super().__init__(inner, backend)
        self.name = "nccl"
        self._waiting = inner.waiting
        self._cuda = backend
        self._streams = Streams(backend)
        self._api = load()
        self._types = {
            FLOAT32: self._api.NCCL_FLOAT32,
            "float16": self._api.NCCL_FLOAT16,
            "bfloat16": self._api.NCCL_BFLOAT16,
        }
        self._kind = inner.wire.name
        self._flying: list[Any] = []  # events
        self._scratch: dict[str, Array] = {}
        backend.activate()
        name = inner.broadcast(self._api.get_unique_id() if self.rank == 0 else None)
        self._group = self._api.NcclCommunicator(self.size, name, self.rank)

    def start(self, nodes: Sequence[Node]) -> None:
        """Queue the sum on the device: nothing waits here."""
        total = nodes[0].sum
        self._cuda.activate()
        for node in nodes[1:]:
            self._cuda.accumulate(total, node.sum)
        self._streams.after_compute()
        with self._streams.communication:
            if self._kind == FLOAT32:
                self._all_reduce(total)
            else:
                self._exchange_pieces(total)
        self._flying.append(self._streams.mark())
        self._waiting.moved()

    def _all_reduce(self, total: Array) -> None:
        address = total.data.ptr
        self._group.allReduce(
            address, address, total.size, self._types[FLOAT32], self._api.NCCL_SUM, self._stream
        )

    @property
    def _stream(self) -> int:
        return int(self._streams.communication.ptr)

    def _exchange_pieces(self, total: Array) -> None:
        """Every rank adds up one piece in float32; what travels has 16 bits."""
        kind, dtype = self._types[self._kind], np.float16 if self._kind == "float16" else np.uint16
        piece = -(-total.size // self.size)
        packed = self._memory("packed", self.size * piece, dtype)
        arrived = self._memory("arrived", self.size * piece, dtype)
        widened = self._memory("widened", piece, np.float32)
        own = self._memory("sum", piece, np.float32)
        parts = [slice(rank * piece, (rank + 1) * piece) for rank in range(self.size)]
        self._cuda.convert(total, packed[: total.size])
        self._api.groupStart()
        for rank, part in enumerate(parts):
            self._group.send(packed[part].data.ptr, piece, kind, rank, self._stream)
            self._group.recv(arrived[part].data.ptr, piece, kind, rank, self._stream)
        self._api.groupEnd()
        self._cuda.convert(arrived[parts[0]], own)
        for part in parts[1:]:
            self._cuda.convert(arrived[part], widened)
            own += widened
        self._cuda.convert(own, packed[parts[self.rank]])
        address = packed[parts[self.rank]].data.ptr  # in place, as NCCL defines it
        self._group.allGather(address, packed.data.ptr, piece, kind, self._stream)
        self._cuda.convert(packed[: total.size], total)

    def _memory(self, what: str, elements: int, dtype: Any) -> Array:
        """Scratch for one sum after the other: the stream keeps them apart."""
        held = self._scratch.get(what)
        if held is None or held.size < elements:
            held = self._scratch[what] = self._cuda.xp.empty(elements, dtype)
        return held[:elements]

    def advance(self) -> None:
        """Look which sums are done; doze a little if none is."""
        done = [event for event in self._flying if event.done]
        if done:
            self._flying = [event for event in self._flying if event not in done]
            self._waiting.moved()
            return
        try:
            self._group.check_async_error()
        except self._api.NcclError as error:
            raise SolverError(f"NCCL lost another rank: {error}") from error
        self._waiting.doze(lambda: ())

    @property
    def under_way(self) -> int:
        return len(self._flying)

    def finish(self) -> None:
        super().finish()
        self._streams.before_compute()

    def describe(self) -> str:
        bits = "" if self._kind == FLOAT32 else f", {self._kind} on the wire"
        return f"nccl, {self.size} ranks{bits}; bits depend on their number"
