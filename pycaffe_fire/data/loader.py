"""A prefetching loader: worker threads fill reused batch buffers ahead of the consumer.

Work items are claimed in order together with a free buffer, so batches come out in the order of
the schedule whatever the threads do, and a slow consumer stops the workers (backpressure).
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from ..backend.tensor import aligned_array

_JOIN_SECONDS = 2.0  # a worker stuck on a dead file system must not keep the process alive


Buffers = tuple[NDArray[np.float32], ...]
Allocate = Callable[[tuple[int, ...]], NDArray[np.float32]]
Filled = tuple[range, Buffers, Buffers]  # samples, buffers to give back, arrays to look at
Result = Filled | BaseException


class Source(Protocol):
    """What a loader reads: random access by sample number, fixed shapes per sample.

    A source whose `varying` is true has a `fit` instead of the fixed shapes: see ImageSource.
    """

    def __len__(self) -> int:
        """How many records there are."""

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """The shape of one sample in each array."""

    @property
    def fill(self) -> Callable[..., None]:
        """fill(samples, *arrays) writes the samples; called by several threads at once."""


class Batch(NamedTuple):
    """One leaf's samples; the arrays are valid until the next batch is taken."""

    samples: range
    arrays: Buffers

    @property
    def data(self) -> NDArray[np.float32]:
        return self.arrays[0]

    @property
    def label(self) -> NDArray[np.float32]:
        return self.arrays[1]


class Loader:
    """Batches of `size` samples following `schedule`, prepared `depth` ahead by `threads`.

    `schedule(first_pass)` gives the endless sample ranges in the order they will be consumed, see
    order.leaf_schedule. Threads start with the first `next`; `wait_seconds` is the time the
    consumer has spent waiting since then. `allocate` makes the batch buffers.
    """

    def __init__(
        self,
        source: Source,
        schedule: Callable[[int], Iterator[range]],
        size: int,
        depth: int = 3,
        threads: int = 2,
        allocate: Allocate = aligned_array,
    ) -> None:
        self.wait_seconds = 0.0
        self._schedule = schedule
        self._threads = threads
        self._held: Buffers | None = None
        # One more than `depth`, because the consumer keeps one while the others are filled.
        buffers = [
            tuple(allocate((size, *shape)) for shape in source.shapes)
            for _ in range(max(depth, threads) + 1)
        ]
        self._queue = _Queue(filler(source, allocate), buffers, schedule(0))
        # Runs when the loader is dropped and at interpreter exit; workers know only the queue.
        self._finalizer = weakref.finalize(self, self._queue.stop)

    def next(self) -> Batch:
        """The next batch of the schedule; the arrays of the one before go back to the workers."""
        self._queue.start(self._threads)
        self._release()
        began = time.perf_counter()
        try:
            samples, self._held, arrays = self._queue.take()
        finally:
            self.wait_seconds += time.perf_counter() - began
        return Batch(samples, arrays)

    def seek(self, pass_number: int) -> None:
        """Continue with the first work item of the given pass; what was prepared is dropped."""
        self._release()
        self._queue.restart(self._schedule(pass_number))

    def _release(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._queue.give_back(held)

    def close(self) -> None:
        """Stop the workers; safe to call twice."""
        self._finalizer()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def filler(source: Source, allocate: Allocate) -> Callable[[range, Buffers], Filled]:
    """What fills buffers with samples."""

    def fixed(samples: range, buffers: Buffers) -> Filled:
        source.fill(samples, *buffers)
        return samples, buffers, buffers

    def varying(samples: range, buffers: Buffers) -> Filled:
        kept, arrays = cast(Any, source).fit(samples, buffers, allocate)
        return samples, kept, arrays

    return varying if getattr(source, "varying", False) else fixed


class _Queue:
    """What consumer and workers share, all of it guarded by one condition."""

    def __init__(
        self,
        fill: Callable[[range, Buffers], Filled],
        buffers: list[Buffers],
        items: Iterator[range],
    ) -> None:
        self._fill = fill
        self._free = buffers
        self._items = items
        self._changed = threading.Condition()
        self._claimed = self._taken = self._generation = 0
        self._ready: dict[int, Result] = {}
        self._workers: list[threading.Thread] = []
        self._closed = self._failed = False

    def start(self, threads: int) -> None:
        if not self._workers and not self._closed:
            self._workers = [
                threading.Thread(target=self._work, name=f"loader-{i}", daemon=True)
                for i in range(threads)
            ]
            for worker in self._workers:
                worker.start()

    def take(self) -> Filled:
        with self._changed:
            while self._taken not in self._ready and not self._closed:
                self._changed.wait()
            if self._closed:
                raise ValueError("the loader is closed")
            result = self._ready[self._taken]
            if isinstance(result, BaseException):  # stays there: the loader cannot go on
                raise result
            del self._ready[self._taken]
            self._taken += 1
            return result

    def give_back(self, buffers: Buffers) -> None:
        with self._changed:
            self._free.append(buffers)
            self._changed.notify_all()

    def restart(self, items: Iterator[range]) -> None:
        with self._changed:
            self._generation += 1
            self._free += [r[1] for r in self._ready.values() if not isinstance(r, BaseException)]
            self._ready.clear()
            self._failed = False
            self._items = items
            self._claimed = self._taken = 0
            self._changed.notify_all()

    def _claim(self) -> tuple[int, int, range, Buffers] | None:
        """The next work item with a buffer for it; None when the loader is closed."""
        with self._changed:
            while not self._closed:
                if not self._free or self._failed:
                    self._changed.wait()
                    continue
                try:
                    samples = next(self._items)
                except BaseException as error:  # of the schedule
                    self._finish(self._generation, self._claimed, error)
                    continue
                self._claimed += 1
                return self._generation, self._claimed - 1, samples, self._free.pop()
        return None

    def _work(self) -> None:
        while (claim := self._claim()) is not None:
            generation, number, samples, buffers = claim
            try:
                self._finish(generation, number, self._fill(samples, buffers))
            except BaseException as error:  # handed to the consumer with its type
                self.give_back(buffers)
                self._finish(generation, number, error)

    def _finish(self, generation: int, number: int, result: Result) -> None:
        with self._changed:
            if generation != self._generation:
                if not isinstance(result, BaseException):
                    self._free.append(result[1])
            else:
                self._ready[number] = result
                self._failed |= isinstance(result, BaseException)
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if threading.current_thread() in self._workers:
            return  # the loader was garbage-collected by one of its own workers
        deadline = time.monotonic() + _JOIN_SECONDS
        for worker in self._workers:
            with contextlib.suppress(RuntimeError):  # never started
                worker.join(max(0.0, deadline - time.monotonic()))
