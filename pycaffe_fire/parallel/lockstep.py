"""All leaves of a rank at once, each on a thread of its own, so that layers can sum over a batch.

Where a layer needs sums over all leaves in the middle of a pass (synchronised statistics), no leaf
can be complete before the next one starts. The sums go along the same tree as gradients, so their
bits depend on the number of leaves alone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np

from ..backend.tensor import Array
from .communicator import Communicator
from .tree import Node, PartialSums
from .waiting import LONGEST_PATIENCE


class Lockstep:
    """What the leaves of this rank and those of others sum up together, one sum after the other.

    Where leaves share a device, its stream and its scratch memory, they do not run `at_once`: one
    goes on to its next sum, and while it waits there another one does.
    """

    def __init__(
        self, communicator: Communicator, own: Sequence[int], leaves: int, at_once: bool = True
    ) -> None:
        self.active = False
        self._communicator, self._own, self._leaves = communicator, own, leaves
        self._values: dict[int, Array] = {}
        self._total: Array = np.empty(0)
        self._barrier = threading.Barrier(len(own), self._merge)
        self._turn = nullcontext() if at_once else threading.Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Inside, all leaves run; elsewhere a leaf may run alone, and `active` is false."""
        self._barrier.reset()
        self.active = True
        try:
            yield
        finally:
            self.active = False

    def turn(self) -> AbstractContextManager[object]:
        """What a leaf does inside, less its sums, runs beside others or by itself."""
        return self._turn

    def sum(self, leaf: int, values: Array) -> Array:
        """The sum over all leaves of host arrays of one size; every leaf calls it as often, in its
        turn."""
        self._values[leaf] = values
        with self._elsewhere():
            self._barrier.wait(LONGEST_PATIENCE)
        return self._total  # replaced only after all leaves have come again

    @contextmanager
    def _elsewhere(self) -> Iterator[None]:
        """Inside, it is another leaf's turn."""
        self._turn.__exit__(None, None, None)
        try:
            yield
        finally:
            self._turn.__enter__()

    def _merge(self) -> None:
        sums = PartialSums(self._leaves, lambda a, b: np.add(a, b, out=a), lambda _: None)
        sums.extend(Node(leaf, 1, self._values[leaf].copy()) for leaf in self._own)
        self._total = self._communicator.all_sum(sums.nodes)

    def fail(self) -> None:
        """A leaf has failed: the others must not wait for it."""
        self._barrier.abort()
