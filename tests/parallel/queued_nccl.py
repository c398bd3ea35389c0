"""A stand-in for cupy.cuda.nccl between real processes: on their streams, calls become MPI's."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.parallel.queued_device import narrow, streams

available = True
NCCL_SUM, NCCL_FLOAT16, NCCL_FLOAT32, NCCL_BFLOAT16 = 0, 6, 7, 9
DTYPES: dict[int, Any] = {
    NCCL_FLOAT16: np.float16,
    NCCL_FLOAT32: np.float32,
    NCCL_BFLOAT16: np.uint16,
}
calls: list[tuple[Any, ...]] = []  # name, count, datatype, stream: in the order of queueing
_group: list[Callable[[], list[Any]]] | None = None
comm: Any = None  # MPI's communicator of the case


class NcclError(RuntimeError):
    pass


def get_unique_id() -> bytes:
    calls.append(("get_unique_id",))
    return secrets.token_bytes(128)


def groupStart() -> None:
    global _group
    _group = []


def groupEnd() -> None:
    global _group
    members, _group = _group or [], None

    def step() -> None:
        for request in [r for member in members for r in member()]:
            request.Wait()

    streams[calls[-1][-1]].enqueue(step)


def memory(address: int, count: int, datatype: int) -> Any:
    dtype = np.dtype(DTYPES[datatype])
    return np.frombuffer((ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address), dtype)


def added(parts: list[Any]) -> Any:
    """In order of ranks, rounded to the stored type after every addition."""
    total = parts[0]
    for part in parts[1:]:
        if part.dtype == np.uint16:
            wide = [(p.astype(np.uint32) << 16).view(np.float32) for p in (total, part)]
            total = narrow(wide[0] + wide[1]).astype(np.uint16)
        else:
            total = total + part
    return total


class NcclCommunicator:
    def __init__(self, ndev: int, commId: bytes, rank: int, config: Any = None) -> None:
        calls.append(("init", ndev, commId, rank))
        self._comm = comm.Dup()
        self.error = ""

    def allReduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int
    ) -> None:
        calls.append(("allReduce", count, datatype, stream))
        assert sendbuf == recvbuf and op == NCCL_SUM

        def step() -> None:
            values = memory(sendbuf, count, datatype)
            values[...] = added(self._comm.allgather(values.copy()))

        streams[stream].enqueue(step)

    def allGather(self, sendbuf: int, recvbuf: int, count: int, datatype: int, stream: int) -> None:
        calls.append(("allGather", count, datatype, stream))
        assert sendbuf == recvbuf + self._comm.rank * count * DTYPES[datatype]().itemsize

        def step() -> None:
            everyone = self._comm.allgather(memory(sendbuf, count, datatype).copy())
            memory(recvbuf, count * self._comm.size, datatype)[...] = np.concatenate(everyone)

        streams[stream].enqueue(step)

    def send(self, sendbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        calls.append(("send", count, datatype, stream))
        assert _group is not None
        _group.append(lambda: [self._comm.Isend(memory(sendbuf, count, datatype), peer)])

    def recv(self, recvbuf: int, count: int, datatype: int, peer: int, stream: int) -> None:
        calls.append(("recv", count, datatype, stream))
        assert _group is not None
        _group.append(lambda: [self._comm.Irecv(memory(recvbuf, count, datatype), peer)])

    def check_async_error(self) -> None:
        if self.error:
            raise NcclError(self.error)
