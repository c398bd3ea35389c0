"""Sums over ranks by an MPI library that reads and writes device memory itself.

Never run on hardware: there was no GPU where this was written.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..communicators import RankCommunicator
from ..tree import Node
from .base import DeviceCommunicator, Streams

if TYPE_CHECKING:
    from ...backend.cuda import CudaBackend

# Libraries that could, but only do where a variable says so: Cray's MPICH, MVAPICH2, Intel's.
SWITCHES = ("MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA", "I_MPI_OFFLOAD")
QUERY = "MPIX_Query_cuda_support"  # int f(void), of Open MPI and of MPICH from 4.0 on


def mpi_reads_devices() -> bool:
    """Does the MPI library in use take addresses of CUDA memory?"""
    for name in SWITCHES:
        if name in os.environ:
            return os.environ[name] not in ("", "0")
    try:
        from mpi4py import MPI

        # A handle of the extension module finds the symbols of the library that it loaded.
        library = ctypes.CDLL(MPI.__file__)
    except (ImportError, RuntimeError, OSError):
        return False
    return hasattr(library, QUERY) and bool(library[QUERY]())


class Direct(DeviceCommunicator):
    """Another communicator's algorithm on device memory: the same tree, so the same bits.

    The library knows nothing of streams. So before a message is sent or awaited, the stream is
    waited for on which slices are added and converted; a message that has come is simply there.
    """

    def __init__(self, inner: RankCommunicator, backend: CudaBackend) -> None:
        super().__init__(inner, backend)
        self._activate = backend.activate
        self._streams = Streams(backend)
        inner.use_device(backend.xp, self._streams.communication.synchronize)

    def start(self, nodes: Sequence[Node]) -> None:
        self._activate()
        self._streams.after_compute()
        with self._streams.communicating():
            self._inner.start(nodes)

    def advance(self) -> None:
        with self._streams.communicating():
            self._inner.advance()

    @property
    def under_way(self) -> int:
        return self._inner.under_way

    def finish(self) -> None:
        super().finish()
        self._streams.before_compute()

    def describe(self) -> str:
        return f"{self._inner.describe()}, MPI on device memory"
