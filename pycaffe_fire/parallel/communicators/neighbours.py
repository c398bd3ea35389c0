"""Memory that the ranks of a host share: a neighbour reads a gradient where it lies.

Buffers are files in memory without a name. A process that is told the
owner, its descriptor and a place can map one through /proc; however a process ends, nothing stays.
"""

from __future__ import annotations

import importlib
import mmap
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...backend.tensor import Array

Note = NDArray[np.float32]  # process, descriptor and place, as what sums send
NOTE_ELEMENTS = 6
LEAST_ELEMENTS = 1 << 14  # of a slice: smaller ones are sent sooner than lent


class Neighbours:
    """This rank's buffers, the ranks that can read them, and views of theirs."""

    def __init__(self, comm: Any, hosts: Sequence[str]) -> None:
        self._mpi = importlib.import_module("mpi4py.MPI")
        self._rank = comm.Get_rank()
        # Kept as long as this is, so that an address always means the same buffer.
        self._own: list[tuple[Array, int]] = []  # with its descriptor
        self._views: dict[tuple[int, int], Array] = {}
        self._readers: set[int] = set()
        self._meet(comm, hosts)

    def _meet(self, comm: Any, hosts: Sequence[str]) -> None:
        """Find out by trying who can read whose memory: one name may be that of several hosts."""
        page = self.zeros(2)
        probe = None
        if page is not None:
            page[...] = np.frombuffer(secrets.token_bytes(page.nbytes), np.float32)
            probe = self._note(page), page.tobytes()
        probes = comm.allgather(probe)
        near = [rank for rank, host in enumerate(hosts) if host == hosts[self._rank]]
        readable = [rank for rank in near if rank != self._rank and self._reads(probes[rank])]
        lists = comm.allgather(readable)
        self._readers = {rank for rank, ranks in enumerate(lists) if self._rank in ranks}

    def _reads(self, probe: tuple[Note, bytes] | None) -> bool:
        if probe is None:
            return False
        with suppress(OSError, ValueError):
            return bool(self.view(probe[0], 2).tobytes() == probe[1])
        return False

    def zeros(self, elements: int) -> Array | None:
        """A buffer that can be lent, or None where that cannot be had."""
        if not elements or not hasattr(os, "memfd_create"):
            return None
        descriptor = os.memfd_create("gradients", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, 4 * elements)
            buffer = np.frombuffer(mmap.mmap(descriptor, 4 * elements), np.float32)
        except OSError:  # no memory
            os.close(descriptor)
            return None
        self._own.append((buffer, descriptor))
        return buffer

    def note(self, values: Array, reader: int) -> Note | None:
        """What tells a rank where these values lie, if they can be lent to it."""
        if reader not in self._readers or values.size < LEAST_ELEMENTS:
            return None
        return self._note(values)

    def _note(self, values: Array) -> Note | None:
        address = values.ctypes.data
        for buffer, descriptor in self._own:
            place = (address - buffer.ctypes.data) // 4
            if 0 <= place < buffer.size:
                made = np.array([os.getpid(), descriptor, place], np.int64)
                return made.view(np.float32)
        return None

    def new_status(self) -> Any:
        """For a message that may turn out to be a note."""
        return self._mpi.Status()

    def is_note(self, status: Any, elements: int) -> bool:
        """Did a note come where a slice of so many elements was expected?"""
        long = elements >= LEAST_ELEMENTS
        return long and status.Get_count(self._mpi.FLOAT) == NOTE_ELEMENTS

    def view(self, note: Note, elements: int) -> Array:
        """A neighbour's values, to be read only."""
        process, descriptor, place = (int(number) for number in note.view(np.int64))
        if (process, descriptor) not in self._views:
            self._views[process, descriptor] = _mapped(f"/proc/{process}/fd/{descriptor}")
        return self._views[process, descriptor][place : place + elements]

    def __del__(self) -> None:
        for _, descriptor in self._own:
            with suppress(OSError):
                os.close(descriptor)


def _mapped(path: str) -> Array:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return np.frombuffer(mmap.mmap(descriptor, 0, prot=mmap.PROT_READ), np.float32)
    finally:
        os.close(descriptor)
