"""Recursive halving and doubling: the tree's sum for every piece, at the bandwidth of a ring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...backend.tensor import Array
from ..tree import Node
from .base import COMMUNICATORS, RankCommunicator, Steps, merge_tree, segments
from .channel import Channel
from .neighbours import Neighbours


@COMMUNICATORS.register("halving")
class HalvingCommunicator(RankCommunicator):
    """2 (p-1)/p times the gradient's size over the bandwidth; the default.

    Neighbours pair at distance 1 first, then 2, 4, ...: the merges of the canonical tree; on one
    host they read from each other's memory. Where ranks do not hold one node each of one size (p
    not a power of two), every rank collects all nodes of its own piece and sums them along the
    tree.
    """

    name = "halving"
    flights = 16  # pairs wait for each other at every step: others use the network meanwhile

    def __init__(self, comm: Any, wire: str = "float32") -> None:
        super().__init__(comm, wire)
        if self._pairs and wire == "float32" and len(set(self.hosts)) < self.size:
            self.neighbours = Neighbours(comm, self.hosts)

    @property
    def _pairs(self) -> bool:
        """Can all ranks pair at every distance?"""
        return self.size & (self.size - 1) == 0

    def steps(self, nodes: Sequence[Node], channel: Channel) -> Steps:
        places = self.layout_of(nodes)
        even = len({tuple(size for _, size in own) for own in places}) == 1 and len(places[0]) == 1
        if even and self._pairs:
            return self._halve_and_double(nodes[0].sum, channel)
        return self._collect_pieces(nodes, places, channel)

    def _halve_and_double(self, total: Array, channel: Channel) -> Steps:
        low, high = 0, total.size
        steps = []
        distance = 1
        while distance < self.size:
            peer, middle = self.rank ^ distance, (low + high) // 2
            lower, upper = slice(low, middle), slice(middle, high)
            give, keep = (lower, upper) if self.rank & distance else (upper, lower)
            piece = total[keep]
            incoming = channel.receive(piece.size, peer)
            yield [incoming, channel.lend(total[give], peer)]
            channel.add(piece, channel.values(incoming))
            steps.append((peer, give, keep))
            low, high = keep.start, keep.stop
            distance *= 2
        channel.round(total[low:high])
        for peer, give, keep in reversed(steps):
            target = total[give]
            incoming = channel.receive_into(target, peer)
            yield [incoming, channel.lend(total[keep], peer)]
            channel.decode_into(incoming, target)
        yield channel.releases()

    def _collect_pieces(
        self, nodes: Sequence[Node], places: list[list[tuple[int, int]]], channel: Channel
    ) -> Steps:
        total = nodes[0].sum
        pieces = segments(total.size, self.size)
        own = pieces[self.rank]
        peers = [(self.rank + i) % self.size for i in range(1, self.size)]
        expected = [(peer, place) for peer in peers for place in places[peer]]
        incoming = [
            channel.receive(own.stop - own.start, peer, slot)
            for slot, (peer, _) in enumerate(expected)
        ]
        yield [
            *incoming,
            *(channel.send(n.sum[pieces[peer]], peer) for peer in peers for n in nodes),
        ]
        complete = [Node(n.first, n.size, n.sum[own]) for n in nodes]
        complete += [
            Node(*place, channel.values(message))
            for (_, place), message in zip(expected, incoming, strict=True)
        ]
        root = merge_tree(complete, channel.add)
        if root is not complete[0].sum:
            total[own] = root
        channel.round(total[own])
        targets = [total[pieces[peer]] for peer in peers]
        incoming = [
            channel.receive_into(target, peer, slot)
            for slot, (target, peer) in enumerate(zip(targets, peers, strict=True))
        ]
        yield [*incoming, *(channel.send(total[own], peer) for peer in peers)]
        for message, target in zip(incoming, targets, strict=True):
            channel.decode_into(message, target)
