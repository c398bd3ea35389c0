"""A parameter server: the paper's baseline. Everybody sends everything to rank 0 and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..tree import Node
from .base import COMMUNICATORS, RankCommunicator, merge_tree


@COMMUNICATORS.register("server")
class ServerCommunicator(RankCommunicator):
    """Time grows linearly with the number of ranks."""

    name = "server"

    def sum_over_ranks(self, nodes: Sequence[Node]) -> None:
        total = nodes[0].sum
        layouts = self.layout_of(nodes)
        if self.rank:
            sends = [self.send(node.sum, 0) for node in nodes]
            self.wait([s[0] for s in sends], [0] * len(sends))
            request, message = self.receive(total.size, 0)
            self.wait([request], [0])
            self.wire.decode(message, total)
            return
        complete = [Node(n.first, n.size, n.sum) for n in nodes]
        received = [
            (peer, first, size, *self.receive(total.size, peer, slot))
            for slot, (peer, first, size) in enumerate(
                (peer, *place) for peer in range(1, self.size) for place in layouts[peer]
            )
        ]
        self.wait([r[3] for r in received], [r[0] for r in received])
        complete += [Node(first, size, self.decoded(m)) for _, first, size, _, m in received]
        root = merge_tree(complete)
        if root is not total:
            np.copyto(total, root)
        self.round(total)
        sends = [self.send(total, peer) for peer in range(1, self.size)]
        self.wait([s[0] for s in sends], list(range(1, self.size)))
