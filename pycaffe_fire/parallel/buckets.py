"""Gradients travel in buckets, last layers first, while backward still runs.

A bucket is a slice of the flat gradients; it is complete once backward has passed the lowest layer
that writes into it. An exchange thread merges and sums complete buckets in a fixed order, so all
ranks take part in the same sums.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..backend.tensor import Array
from ..net import Net
from .communicator import Communicator
from .tree import Node, PartialSums

Accumulate = Callable[[Array, Array], None]
BUCKET = 1 << 20  # elements (4 MB): large enough for bandwidth, small enough to overlap


@dataclass(frozen=True)
class Bucket:
    """A slice of the flat buffers that backward completes when it has done layer `layer`."""

    place: slice
    layer: int


def make_buckets(net: Net) -> list[Bucket]:
    """Slices of about BUCKET elements in the order in which backward completes them."""
    first_user: dict[int, int] = {}
    for i, layer in enumerate(net.layers):
        leader = net.leader_of.get(i, i)
        writer = leader if net.layers[leader].fuses_backward else i
        for blob in layer.blobs:
            first_user.setdefault(id(blob.gradient), writer)
    buckets: list[Bucket] = []
    stop = net.parameters.size
    lowest = len(net.layers)
    for p in reversed(net.parameters.items):
        lowest = min(lowest, first_user[id(p.blob.gradient)])
        if stop - p.start >= BUCKET or p.start == 0:
            buckets += _cut(p.start, stop, lowest)
            stop = p.start
    return buckets


def _cut(start: int, stop: int, layer: int) -> list[Bucket]:
    """A long slice (one large parameter) goes as several buckets."""
    parts = max(1, (stop - start) // BUCKET)
    ends = [start + (stop - start) * i // parts for i in range(parts + 1)]
    pairs = zip(ends, ends[1:], strict=False)
    return [Bucket(slice(a, b), layer) for a, b in pairs][::-1]


class Exchange:
    """Merges the nodes of this rank in complete buckets and sums them over ranks, in order, on a
    thread of its own.

    `nets` nets must report a bucket before it is complete; all ranks together have `leaves` leaves.
    It calls only the communicator
    and `accumulate`, which adds buffers.
    """

    def __init__(
        self, buckets: list[Bucket], nets: int, leaves: int, communicator: Communicator,
        accumulate: Accumulate,
    ) -> None:  # fmt: skip
        self.buckets, self._nets, self._leaves = buckets, nets, leaves
        self._communicator, self._accumulate = communicator, accumulate
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._done = threading.Event()
        self._error: BaseException | None = None
        self.busy_seconds = 0.0  # spent on merging and sums
        self.exposed_seconds = 0.0  # spent waiting for them after backward
        # When the last iteration's buckets were worked on, and when their sums were waited for.
        self.periods: list[tuple[float, float]] = []
        self.waited = (0.0, 0.0)
        self._thread = threading.Thread(target=self._run, name="exchange", daemon=True)
        self._thread.start()

    def begin(self, held: Sequence[Sequence[Node]]) -> None:
        """A new iteration: nothing is complete. held[net] has a net's nodes by its first report."""
        self._held = held
        self._reported = [0] * len(self.buckets)
        self._next = [0] * self._nets
        self._submitted = 0
        self._error = None
        self.periods = []
        self._done.clear()
        if not self.buckets:  # nothing learns
            self._done.set()

    def report(self, net: int, layer: int) -> list[Bucket]:
        """Net number `net` has done `layer` backward; returns the buckets it completed by that."""
        completed = []
        while self._next[net] < len(self.buckets):
            bucket = self.buckets[self._next[net]]
            if bucket.layer < layer:
                break
            completed.append(bucket)
            self._next[net] += 1
        return completed

    def submit(self, bucket: Bucket) -> None:
        """Count one net's share of a bucket; the last one hands it to the thread."""
        index = self.buckets.index(bucket)
        with self._lock:
            self._reported[index] += 1
            while (
                self._submitted < len(self.buckets)
                and self._reported[self._submitted] == self._nets
            ):
                self._work.put(self._submitted)
                self._submitted += 1

    def finish(self) -> None:
        """Wait until all buckets are summed; a failure in the thread is raised here."""
        began = time.perf_counter()
        self._done.wait()
        self.waited = began, time.perf_counter()
        self.exposed_seconds += self.waited[1] - began
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        while (index := self._work.get()) is not None:
            began = time.perf_counter()
            try:
                if self._error is None:
                    self._merge(self.buckets[index])
                    self._go_on(last=index == len(self.buckets) - 1)
            except BaseException as error:  # raised again in the thread that waits
                self._error = error
            self.periods.append((began, time.perf_counter()))
            self.busy_seconds += self.periods[-1][1] - began
            if index == len(self.buckets) - 1 or self._error is not None:
                self._done.set()

    def _merge(self, bucket: Bucket) -> None:
        """Add up one slice of all nodes, then start its sum over ranks."""
        sums = PartialSums(self._leaves, self._accumulate, lambda _: None)
        for nodes in self._held:
            sums.extend(Node(n.first, n.size, n.sum[bucket.place]) for n in nodes)
        self._communicator.start(sums.nodes)

    def _go_on(self, last: bool) -> None:
        """Let the started sums go on until the next bucket is here; after the last, to the end."""
        if last:
            self._communicator.finish()
        while self._communicator.under_way and self._work.empty():
            self._communicator.advance()

    def close(self) -> None:
        self._work.put(None)
        self._thread.join(timeout=5)
