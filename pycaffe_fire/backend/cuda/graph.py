"""Launches recorded as a CUDA graph, and replayed: one call instead of hundreds.

A graph repeats what it recorded, byte for byte, so whatever differs from time to time lives in
device memory that is written before: inputs in buffers that never move, and the numbers of kernels
in cells, from which variants of those kernels read them. Memory that array code took while it was
recorded comes from a pool of the graph's own, because replays write to it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ...errors import BackendError
from ..plans import Recorder
from ..tensor import Array
from .later import Later
from .launch import Kernel

if TYPE_CHECKING:
    from . import CudaBackend

T = TypeVar("T")
CELLS, WIDTH = 4096, 8  # numbers, and the bytes for each
STEP, RATE = "step", "rate"  # the marks of kernels that draw random numbers, and that update


class GraphRecorder(Recorder):
    """One recording on a backend's compute stream."""

    def __init__(self, backend: CudaBackend) -> None:
        xp = backend.xp
        self._backend, self._xp, self._stream = backend, xp, backend.compute
        self._pool = xp.cuda.MemoryPool()
        self._host = np.zeros(CELLS * WIDTH, np.uint8)
        self._device = xp.empty(CELLS * WIDTH, np.uint8)
        self._used = 0
        self._steps: list[int] = []  # cells that hold the step
        self._changing: list[tuple[str, list[int]]] = []  # kernels and their cells, in order
        self._expected: Iterator[tuple[str, list[int]]] | None = None
        self._all_change = False
        self.deferred_checks: list[tuple[Array, Callable[[], None]]] = []
        self._graph: Any = None
        self._scratch: Array | None = None

    # Recording.

    def record(self, body: Callable[[], T]) -> T:
        backend = self._backend
        backend.activate()
        backend.kernels.prepare(STEP, RATE)  # better before than while the stream is captured
        with backend.recording(self), self._xp.cuda.using_allocator(self._pool.malloc):
            self._stream.begin_capture()
            try:
                made = body()
            except BaseException:
                with contextlib.suppress(Exception):  # the reason is what body raised
                    self._stream.end_capture()
                raise
            self._graph = self._stream.end_capture()
        self._scratch = backend.scratch(1)  # replays go on writing to it
        return made

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        self._all_change = True
        try:
            yield
        finally:
            self._all_change = False

    def launched(self, kernel: Kernel, blocks: int, values: Sequence[Any]) -> bool:
        """A kernel is to be launched; True if there is nothing left to do for it."""
        if self._expected is not None:
            self._refresh(kernel, values)
            return True
        if not (self._all_change or STEP in kernel.numbers):
            return False
        cells = {name: self._new_cell() for name in kernel.numbers}
        if self._all_change:
            self._changing.append((kernel.name, list(cells.values())))
        else:
            self._steps.append(cells[STEP])
        if not cells:
            return False
        self._write(kernel, list(cells.values()), values)
        pairs = zip(cells.values(), kernel.numbers.values(), strict=True)
        kernel.launch_reading(blocks, values, [self._place(*pair) for pair in pairs])
        return True

    def _new_cell(self) -> int:
        if self._used == CELLS:
            raise BackendError(
                f"a CUDA graph of this net needs more than {CELLS} changing numbers; leave out "
                f"--cuda-graph"
            )
        self._used += 1
        return self._used - 1

    def _place(self, cell: int, dtype: Any) -> Array:
        start = cell * WIDTH
        return self._device[start : start + np.dtype(dtype).itemsize].view(dtype)

    def _write(self, kernel: Kernel, cells: Sequence[int], values: Sequence[Any]) -> None:
        for cell, value in zip(cells, kernel.numbers_of(values), strict=True):
            self._host[cell * WIDTH :][: value.nbytes] = np.frombuffer(value.tobytes(), np.uint8)

    # Replaying.

    @contextlib.contextmanager
    def refreshing(self) -> Iterator[None]:
        self._expected = iter(self._changing)
        self._backend.kernels.recorder = self
        try:
            yield
        finally:
            self._expected = self._backend.kernels.recorder = None

    def _refresh(self, kernel: Kernel, values: Sequence[Any]) -> None:
        assert self._expected is not None
        name, cells = next(self._expected, ("nothing", []))
        if name != kernel.name:
            raise BackendError(
                f"a CUDA graph recorded {name} where {kernel.name} is to run now; leave out "
                f"--cuda-graph"
            )
        self._write(kernel, cells, values)

    def replay(self, step: int) -> None:
        for cell in self._steps:
            self._host[cell * WIDTH :][:WIDTH] = np.array([step], np.uint64).view(np.uint8)
        if self._used:
            used = self._used * WIDTH
            self._device[:used].set(self._host[:used], stream=self._stream)
        self._graph.launch(self._stream)
        self._backend.unwatched = True
        for condition, on_failure in self.deferred_checks:
            self._backend.require(condition.copy(), on_failure)

    def copied(self, number: Any) -> Any:
        return number.copied() if isinstance(number, Later) else number
