"""The canonical sum: one balanced binary tree over leaf numbers, on whichever rank they run.

A node covers the leaves first .. first+size-1 with size a power of two and first a multiple of
it; two neighbours of one size merge into their parent. Where the number of leaves is no power of
two, the last node of each level covers those that are left: it is smaller than its left sibling, or
has none to its right and is its own parent. Any owner of any run of leaves that merges whenever it
can builds parts of the same tree, so the result has the same bits for every division of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..backend.tensor import Array
from ..errors import SolverError


@dataclass
class Node:
    """The sum of the leaves first .. first+size-1."""

    first: int
    size: int
    sum: Array

    def is_left_sibling_of(self, other: Node, leaves: int) -> bool:
        """Do the two merge, in a tree of so many leaves?"""
        last = other.first + other.size == leaves
        return (
            (self.size == other.size or (last and self.size > other.size))
            and self.first % (2 * self.size) == 0
            and other.first == self.first + self.size
        )


class PartialSums:
    """A run of some of all `leaves` on their way up the tree; add them in order of numbers."""

    def __init__(
        self,
        leaves: int,
        accumulate: Callable[[Array, Array], None],
        release: Callable[[Array], None],
    ) -> None:
        self.nodes: list[Node] = []
        self._leaves = leaves
        self._accumulate = accumulate
        self._release = release

    def add(self, node: Node) -> None:
        """Append a node and merge upwards as far as it goes; merged buffers are released."""
        self.nodes.append(node)
        while len(self.nodes) > 1 and self.nodes[-2].is_left_sibling_of(
            self.nodes[-1], self._leaves
        ):
            right, left = self.nodes.pop(), self.nodes.pop()
            self._accumulate(left.sum, right.sum)
            self._release(right.sum)
            self.nodes.append(Node(left.first, left.size + right.size, left.sum))

    def extend(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self.add(node)


def places(own: range, leaves: int) -> list[tuple[int, int]]:
    """(first, size) of the nodes that a run of all leaves merges into."""
    sums = PartialSums(leaves, lambda total, part: None, lambda part: None)
    sums.extend(Node(leaf, 1, None) for leaf in own)
    return [(node.first, node.size) for node in sums.nodes]


def merges(nodes: Sequence[tuple[int, int]]) -> list[int]:
    """How many pairs merge after each of a tree's nodes, (first, size) in order of leaves."""
    sums = PartialSums(sum(nodes[-1]), lambda total, part: None, lambda part: None)
    found = []
    for first, size in nodes:
        before = len(sums.nodes)
        sums.add(Node(first, size, None))
        found.append(before + 1 - len(sums.nodes))
    return found


def check_leaves(leaves: int) -> None:
    if leaves < 1:
        raise SolverError(f"the number of leaves must be at least 1, got {leaves}")


def runs(leaves: range, parts: int) -> list[range]:
    """Cut a run of leaves into at most `parts` contiguous runs of nearly equal length."""
    parts = min(parts, len(leaves))
    base, extra = divmod(len(leaves), parts)
    cut, start = [], leaves.start
    for i in range(parts):
        stop = start + base + (i < extra)
        cut.append(range(start, stop))
        start = stop
    return cut
