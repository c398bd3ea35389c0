"""A ring: pieces travel round once to be summed and once to be shared."""

from __future__ import annotations

from collections.abc import Sequence

from ..tree import Node
from .base import COMMUNICATORS, RankCommunicator, Steps, merge_local, segments
from .channel import Channel


@COMMUNICATORS.register("ring")
class RingCommunicator(RankCommunicator):
    """2 (p-1)/p times the size over the bandwidth; its sums have an order of their own."""

    name = "ring"
    canonical = False

    def steps(self, nodes: Sequence[Node], channel: Channel) -> Steps:
        total = merge_local(nodes, channel.add)
        pieces = segments(total.size, self.size)
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for step in range(self.size - 1):
            target = total[pieces[(self.rank - step - 1) % self.size]]
            incoming = channel.receive(target.size, before)
            yield [incoming, channel.send(total[pieces[(self.rank - step) % self.size]], after)]
            channel.add(target, channel.values(incoming))
        channel.round(total[pieces[after]])
        for step in range(self.size - 1):
            target = total[pieces[(self.rank - step) % self.size]]
            incoming = channel.receive_into(target, before)
            yield [incoming, channel.send(total[pieces[(after - step) % self.size]], after)]
            channel.decode_into(incoming, target)
