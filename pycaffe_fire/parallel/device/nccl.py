"""Sums over ranks by NCCL, through CuPy. Never run on hardware: there was no GPU to run it on.

Slices are summed on a stream of their own while backward goes on on another. The order of NCCL's
sums is its own and depends on the number of ranks: unlike those of the tree (nccl_tree.py), bits of
the result depend on it too.
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


class NcclCommunicator(DeviceCommunicator):
    """One NCCL group over all ranks of a job, one device each.

    Sums are queued, and the compute stream waits for them: the host waits only for those of the
    iteration before, which is how it learns of a lost rank and stays near the device.
    """

    def __init__(self, inner: RankCommunicator, backend: CudaBackend) -> None:
        """Whatever can fail without the other ranks; `join` is what all of them do together."""
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
        self._flying: list[Any] = []  # events of this iteration
        self._older: list[Any] = []  # and of the one before
        self._scratch: dict[str, Array] = {}
        self._name = self._api.get_unique_id() if self.rank == 0 else None

    def join(self) -> None:
        """Meet the other ranks."""
        self._cuda.activate()
        name = self._inner.broadcast(self._name)
        self._group = self._api.NcclCommunicator(self.size, name, self.rank)

    def start(self, nodes: Sequence[Node]) -> None:
        """Queue the sum on the device: nothing waits here."""
        self._cuda.activate()
        self._streams.after_compute()
        with self._streams.communicating():
            self._queue(nodes)
        self._flying.append(self._streams.mark())
        self._waiting.moved()

    def _queue(self, nodes: Sequence[Node]) -> None:
        """Write the sum over all ranks over nodes[0].sum, on the current stream."""
        raise NotImplementedError

    @property
    def _stream(self) -> int:
        return int(self._streams.communication.ptr)

    def _memory(self, what: str, elements: int, dtype: Any) -> Array:
        """Scratch for one sum after the other: the stream keeps them apart."""
        held = self._scratch.get(what)
        if held is None or held.size < elements:
            held = self._scratch[what] = self._cuda.xp.empty(elements, dtype)
        return held[:elements]

    @property
    def under_way(self) -> int:
        """Nothing here goes on by being asked to."""
        return 0

    def advance(self) -> None:
        """There is nothing to push; NCCL's errors come to light when the next iteration ends."""

    def finish(self) -> None:
        self._streams.before_compute()
        older, self._older, self._flying = self._older, self._flying, []
        for event in older:
            self._wait_for(event)

    def _wait_for(self, event: Any) -> None:
        while not event.done:
            try:
                self._group.check_async_error()
            except self._api.NcclError as error:
                raise SolverError(f"NCCL lost another rank: {error}") from error
            self._waiting.doze(lambda: ())
        self._waiting.moved()

    def _on_the_wire(self) -> str:
        return "" if self._kind == FLOAT32 else f", {self._kind} on the wire"


class Nccl(NcclCommunicator):
    """NCCL's own sum. Gradients of 16 bits are rounded after every addition of NCCL's, too."""

    def _queue(self, nodes: Sequence[Node]) -> None:
        total = nodes[0].sum
        for node in nodes[1:]:
            self._cuda.add_on_stream(total, node.sum)
        packed = total
        if self._kind != FLOAT32:
            dtype = np.float16 if self._kind == "float16" else np.uint16
            packed = self._memory("packed", total.size, dtype)
            self._cuda.convert(total, packed)
        address = packed.data.ptr
        self._group.allReduce(
            address, address, total.size, self._types[self._kind], self._api.NCCL_SUM, self._stream
        )
        if packed is not total:
            self._cuda.convert(packed, total)

    def describe(self) -> str:
        return f"nccl, {self.size} ranks{self._on_the_wire()}; bits depend on their number"
