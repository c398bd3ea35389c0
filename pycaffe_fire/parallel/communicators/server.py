"""A parameter server: the paper's baseline. Everybody sends everything to rank 0 and back."""

from __future__ import annotations

from collections.abc import Sequence

from ..tree import Node
from .base import COMMUNICATORS, RankCommunicator, Steps, merge_tree
from .channel import Channel


@COMMUNICATORS.register("server")
class ServerCommunicator(RankCommunicator):
    """Time grows linearly with the number of ranks."""

    name = "server"
    flights = 1  # the plain algorithm: what the others are compared with

    def steps(self, nodes: Sequence[Node], channel: Channel) -> Steps:
        if self.rank:
            return self._ask(nodes, channel)
        return self._serve(nodes, channel)

    def _ask(self, nodes: Sequence[Node], channel: Channel) -> Steps:
        self.layout_of(nodes)
        yield [channel.send(node.sum, 0) for node in nodes]
        total = nodes[0].sum
        incoming = channel.receive_into(total, 0)
        yield [incoming]
        channel.decode_into(incoming, total)

    def _serve(self, nodes: Sequence[Node], channel: Channel) -> Steps:
        total, layouts = nodes[0].sum, self.layout_of(nodes)
        peers = range(1, self.size)
        expected = [(peer, place) for peer in peers for place in layouts[peer]]
        incoming = [
            channel.receive(total.size, peer, slot) for slot, (peer, _) in enumerate(expected)
        ]
        yield incoming
        complete = [Node(n.first, n.size, n.sum) for n in nodes]
        complete += [
            Node(*place, channel.values(message))
            for (_, place), message in zip(expected, incoming, strict=True)
        ]
        root = merge_tree(complete, channel.add)
        if root is not total:
            total[...] = root
        channel.round(total)
        yield [channel.send(total, peer) for peer in peers]
