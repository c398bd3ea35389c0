"""The canonical sum: the same bits for every division of the leaves."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.errors import SolverError
from pycaffe_fire.parallel.tree import Node, PartialSums, check_leaves, merges, places, runs
from tests.random_numbers import RNG

Array = np.ndarray[Any, Any]


def balanced(values: list[Array]) -> Array:
    """The definition: parts are summed on their own, then added; the first is a power of two."""
    if len(values) == 1:
        return values[0]
    half = 1 << (len(values) - 1).bit_length() - 1  # the largest power of two below
    return balanced(values[:half]) + balanced(values[half:])


def add(total: Array, part: Array) -> None:
    total += part


def summed(values: list[Array], cuts: list[int]) -> tuple[Array, int]:
    """The sum when each run between two cuts is merged on its own first; buffers released."""
    released: list[Array] = []
    final = PartialSums(len(values), add, released.append)
    for start, stop in pairwise([0, *cuts, len(values)]):
        part = PartialSums(len(values), add, released.append)
        for i in range(start, stop):
            part.add(Node(i, 1, values[i].copy()))
        final.extend(part.nodes)
    (root,) = final.nodes
    assert (root.first, root.size) == (0, len(values))
    return root.sum, len(released)


@pytest.mark.parametrize("leaves", [1, 2, 4, 8, 16, 64, 3, 6, 7, 12, 13, 100])
def test_every_cut_builds_the_same_tree(leaves: int) -> None:
    values = [
        RNG.normal(size=5).astype(np.float32) * 10.0 ** RNG.integers(-4, 5) for _ in range(leaves)
    ]
    expected = balanced(values)
    for _ in range(40):
        parts = int(RNG.integers(1, leaves + 1))
        cuts = (
            sorted(RNG.choice(np.arange(1, leaves), parts - 1, replace=False).tolist())
            if parts > 1
            else []
        )
        total, released = summed(values, cuts)
        np.testing.assert_array_equal(total, expected)
        assert released == leaves - 1


def test_order_matters_which_is_why_there_is_a_tree() -> None:
    values = [np.array([v], np.float32) for v in (1e8, 1, -1e8, 1)]
    assert summed(values, [])[0] != sum(values[1:], values[0])


def test_a_run_keeps_what_it_cannot_merge() -> None:
    part = PartialSums(8, add, lambda _: None)
    for i in range(1, 7):
        part.add(Node(i, 1, np.ones(1)))
    assert [(n.first, n.size) for n in part.nodes] == [(1, 1), (2, 2), (4, 2), (6, 1)]
    assert places(range(1, 7), 8) == [(1, 1), (2, 2), (4, 2), (6, 1)]
    assert places(range(1, 7), 7) == [(1, 1), (2, 2), (4, 3)]  # there is nothing after it
    assert merges([(0, 4), (4, 2), (6, 1)]) == [0, 0, 2]


def test_there_is_a_leaf() -> None:
    with pytest.raises(SolverError, match="at least 1, got 0"):
        check_leaves(0)


def test_runs_cover_all_leaves_in_order() -> None:
    for count in (1, 2, 8, 16):
        for parts in range(1, 20):
            cut = runs(range(3, 3 + count), parts)
            assert [i for part in cut for i in part] == list(range(3, 3 + count))
            lengths = [len(part) for part in cut]
            assert len(cut) == min(parts, count) and max(lengths) - min(lengths) <= 1
