"""Recursive halving and doubling: the tree's sum for every piece, at the bandwidth of a ring."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...backend.tensor import Array
from ..tree import Node
from .base import COMMUNICATORS, RankCommunicator, merge_tree, segments


@COMMUNICATORS.register("halving")
class HalvingCommunicator(RankCommunicator):
    """2 (p-1)/p times the gradient's size over the bandwidth; the default.

    Neighbours pair at distance 1 first, then 2, 4, ...: the merges of the canonical tree. Where
    ranks do not hold one node each of one size (p not a power of two), every rank collects all
    nodes of its own piece and sums them along the tree.
    """

    name = "halving"

    def sum_over_ranks(self, nodes: Sequence[Node]) -> None:
        places = self.layout_of(nodes)
        even = len({tuple(size for _, size in own) for own in places}) == 1 and len(places[0]) == 1
        if even and self.size & (self.size - 1) == 0:
            self._halve_and_double(nodes[0].sum)
        else:
            self._collect_pieces(nodes, places)

    def _halve_and_double(self, total: Array) -> None:
        low, high = 0, total.size
        steps = []
        distance = 1
        while distance < self.size:
            peer, middle = self.rank ^ distance, (low + high) // 2
            lower, upper = slice(low, middle), slice(middle, high)
            give, keep = (lower, upper) if self.rank & distance else (upper, lower)
            piece = total[keep]
            np.add(piece, self.exchange(total[give], peer, piece.size), out=piece)
            steps.append((peer, give, keep))
            low, high = keep.start, keep.stop
            distance *= 2
        self.round(total[low:high])
        for peer, give, keep in reversed(steps):
            target = total[give]
            self.wire.decode(self.exchange(total[keep], peer, target.size), target)

    def _collect_pieces(self, nodes: Sequence[Node], places: list[list[tuple[int, int]]]) -> None:
        total = nodes[0].sum
        pieces = segments(total.size, self.size)
        own = pieces[self.rank]
        peers = [(self.rank + i) % self.size for i in range(1, self.size)]
        extent = own.stop - own.start
        incoming = [
            (peer, place, *self.receive(extent, peer, slot))
            for slot, (peer, place) in enumerate((p, at) for p in peers for at in places[p])
        ]
        outgoing = [(peer, *self.send(n.sum[pieces[peer]], peer)) for peer in peers for n in nodes]
        self.wait(
            [r[2] for r in incoming] + [s[1] for s in outgoing],
            [r[0] for r in incoming] + [s[0] for s in outgoing],
        )
        complete = [Node(n.first, n.size, n.sum[own]) for n in nodes]
        complete += [Node(*place, self.decoded(m)) for _, place, _, m in incoming]
        root = merge_tree(complete)
        if root is not complete[0].sum:
            total[own] = root
        self.round(total[own])
        self._share_pieces(total, pieces, peers)

    def _share_pieces(self, total: Array, pieces: list[slice], peers: list[int]) -> None:
        incoming = [
            (peer, *self.receive(pieces[peer].stop - pieces[peer].start, peer, slot))
            for slot, peer in enumerate(peers)
        ]
        outgoing = [(peer, *self.send(total[pieces[self.rank]], peer)) for peer in peers]
        self.wait(
            [r[1] for r in incoming] + [s[1] for s in outgoing],
            [r[0] for r in incoming] + [s[0] for s in outgoing],
        )
        for peer, _, message in incoming:
            self.wire.decode(message, total[pieces[peer]])
