"""The paper's reduction tree: nodes merge upwards, the root is broadcast down a binomial tree."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ...backend.tensor import Array
from ..tree import Node
from .base import COMMUNICATORS, RankCommunicator, Steps
from .channel import Channel

Place = tuple[int, int]  # first leaf, size


@COMMUNICATORS.register("tree")
class TreeCommunicator(RankCommunicator):
    """2 log2(p) times the gradient's size over the bandwidth."""

    name = "tree"
    flights = 1  # the plain algorithm: what the others are compared with

    def steps(self, nodes: Sequence[Node], channel: Channel) -> Steps:
        held = {(n.first, n.size): n.sum for n in nodes}
        self._places = self.layout_of(nodes)
        for (left, left_rank), (right, right_rank) in self._merges:
            if self.rank == right_rank != left_rank:
                yield [channel.send(held.pop(right), left_rank)]
            elif self.rank == left_rank:
                if right_rank == left_rank:
                    other = held.pop(right)
                else:
                    incoming = channel.receive(held[left].size, right_rank)
                    yield [incoming]
                    other = channel.values(incoming)
                total = held.pop(left)
                channel.add(total, other)
                held[left[0], left[1] + right[1]] = total
        yield from self._broadcast(nodes[0].sum, channel)

    @cached_property
    def _merges(self) -> list[tuple[tuple[Place, int], tuple[Place, int]]]:
        """All merges of the tree, lower levels first: (left node, owner), (right node, owner)."""
        owners = {place: rank for rank, places in enumerate(self._places) for place in places}
        leaves = sum(size for _, size in owners)
        merges = []
        size = 1
        while len(owners) > 1:
            for first, extent in sorted(owners):
                after = first + size
                sibling = (after, min(size, leaves - after))  # the last one may be smaller
                if extent == size and first % (2 * size) == 0 and sibling in owners:
                    left, right = owners.pop((first, size)), owners.pop(sibling)
                    merges.append((((first, size), left), (sibling, right)))
                    owners[first, size + sibling[1]] = left
            size *= 2
        return merges

    def _broadcast(self, total: Array, channel: Channel) -> Steps:
        """From rank 0 to all, in log2(p) rounds; the largest subtree is served first."""
        step = 1
        while step < self.size:
            step *= 2
        received = self.rank == 0
        if received:
            channel.round(total)
        while step > 1:
            step //= 2
            if received and self.rank + step < self.size and self.rank % (2 * step) == 0:
                yield [channel.send(total, self.rank + step)]
            elif not received and self.rank % step == 0 and self.rank % (2 * step):
                incoming = channel.receive_into(total, self.rank - step)
                yield [incoming]
                channel.decode_into(incoming, total)
                received = True
