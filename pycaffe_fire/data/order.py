"""Which record is whose: one endless global order of samples, the same for any number of ranks.

Sample number g counts over the whole training and never wraps. Pass p (one forward of the global
batch B) covers the numbers p*B ... p*B + B - 1, and leaf l of L takes its l-th part of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..backend import random
from ..errors import DataError


def leaf_size(batch: int, leaves: int) -> int:
    """How many samples of a batch each leaf has; what to choose where they cannot be equal."""
    if leaves > 0 and batch % leaves == 0:
        return batch // leaves
    even = sorted({max(1, batch // leaves) * leaves, -(-batch // leaves) * leaves})
    cuts = [n for n in range(1, batch + 1) if batch % n == 0]
    near = [*[n for n in cuts if n < leaves][-1:], *[n for n in cuts if n > leaves][:1]]
    raise DataError(
        f"a batch of {batch} cannot be cut into {leaves} equal leaves; choose a batch_size of "
        f"{' or '.join(map(str, even))}, or --leaves {' or '.join(map(str, near))}"
    )


def leaf_samples(pass_number: int, leaf: int, batch: int, leaves: int) -> range:
    """The sample numbers of one leaf of one pass."""
    size = leaf_size(batch, leaves)
    first = pass_number * batch + leaf * size
    return range(first, first + size)


def visits(first_pass: int, own: Sequence[int], iter_size: int = 1) -> Iterator[tuple[int, int]]:
    """(pass, leaf) in the order a net runs them: all passes of an iteration for one leaf first.

    Each leaf's gradient over an iteration is complete before the next leaf starts.
    """
    iteration = first_pass // iter_size
    while True:
        for leaf in own:
            for i in range(iter_size):
                yield iteration * iter_size + i, leaf
        iteration += 1


def leaf_schedule(
    batch: int, leaves: int, own: Sequence[int], iter_size: int = 1
) -> Callable[[int], Iterator[range]]:
    """A loader's schedule: from a given pass on, the samples of the leaves `own` of each pass."""

    def schedule(first_pass: int) -> Iterator[range]:
        for pass_number, leaf in visits(first_pass, own, iter_size):
            yield leaf_samples(pass_number, leaf, batch, leaves)

    return schedule


class Order(Protocol):
    """Maps sample numbers to records."""

    def records(self, samples: range, count: int) -> NDArray[np.int64]:
        """The record of each sample, in a source of `count` records."""


class SequentialOrder:
    """Record (offset + g) mod count, as Caffe; rand_skip gives the offset."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset

    def records(self, samples: range, count: int) -> NDArray[np.int64]:
        first = (samples.start + self.offset) % count
        return (first + np.arange(len(samples), dtype=np.int64)) % count


class ShuffledOrder:
    """A new permutation of the records every epoch, a function of the key and the epoch alone."""

    def __init__(self, key: int) -> None:
        self._key = key
        self._recent: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._lock = threading.Lock()

    def records(self, samples: range, count: int) -> NDArray[np.int64]:
        parts = []
        at = samples.start
        while at < samples.stop:
            epoch, start = divmod(at, count)
            stop = min(count, start + samples.stop - at)
            parts.append(self._permutation(epoch, count)[start:stop])
            at += stop - start
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _permutation(self, epoch: int, count: int) -> NDArray[np.int64]:
        with self._lock:  # threads that prefetch across the end of an epoch share the work
            if (epoch, count) not in self._recent:
                while len(self._recent) > 1:
                    del self._recent[next(iter(self._recent))]
                words = random.bits(self._key, epoch, 0, count)
                self._recent[epoch, count] = np.argsort(words, kind="stable")
            return self._recent[epoch, count]


def skip_offset(seed: int, purpose: str, rand_skip: int) -> int:
    """The record a run starts at: somewhere in the first rand_skip, as Caffe's rand_skip."""
    return random.randint(random.key(seed, purpose), 0, 0, rand_skip) if rand_skip > 0 else 0
