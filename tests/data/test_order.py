"""The global order: leaves tile passes, epochs cover everything, no rank count in sight."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from pycaffe_fire.backend import random
from pycaffe_fire.data.order import (
    SequentialOrder,
    ShuffledOrder,
    leaf_samples,
    leaf_schedule,
    skip_offset,
)
from pycaffe_fire.errors import DataError


def test_leaves_tile_the_passes() -> None:
    for leaves in (1, 2, 4):
        numbers = [
            g for p in range(3) for leaf in range(leaves) for g in leaf_samples(p, leaf, 8, leaves)
        ]
        assert numbers == list(range(24))


def test_uneven_leaves_are_refused() -> None:
    with pytest.raises(DataError, match="batch of 10 cannot be cut into 4"):
        leaf_samples(0, 0, 10, 4)


def test_schedule_starts_anywhere() -> None:
    schedule = leaf_schedule(8, 4, [2, 3])
    assert list(islice(schedule(5), 3)) == [range(44, 46), range(46, 48), range(52, 54)]


def test_sequential() -> None:
    assert SequentialOrder().records(range(5, 12), 5).tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert SequentialOrder(offset=3).records(range(0, 3), 5).tolist() == [3, 4, 0]
    assert SequentialOrder().records(range(10**12, 10**12 + 2), 7).tolist() == [1, 2]


def test_shuffled_epochs() -> None:
    order = ShuffledOrder(random.key(1, "data"))
    drawn = order.records(range(0, 300), 100).reshape(3, 100)
    assert all(sorted(epoch) == list(range(100)) for epoch in drawn)
    assert len({tuple(epoch) for epoch in drawn}) == 3
    # Any cut of the same numbers, and another object, gives the same records.
    again = ShuffledOrder(random.key(1, "data"))
    pieces = [again.records(range(a, a + 30), 100) for a in range(270, -30, -30)]
    assert np.array_equal(np.concatenate(pieces[::-1]), drawn.ravel())
    other = ShuffledOrder(random.key(2, "data")).records(range(100), 100)
    assert not np.array_equal(other, drawn[0])


def test_skip() -> None:
    assert skip_offset(1, "data", 0) == 0
    offsets = {skip_offset(seed, "data", 10) for seed in range(100)}
    assert offsets == set(range(10))
