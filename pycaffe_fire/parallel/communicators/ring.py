"""A ring: pieces travel round once to be summed and once to be shared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..tree import Node
from .base import COMMUNICATORS, RankCommunicator, merge_local, segments


@COMMUNICATORS.register("ring")
class RingCommunicator(RankCommunicator):
    """2 (p-1)/p times the size over the bandwidth; its sums have an order of their own."""

    name = "ring"
    canonical = False

    def sum_over_ranks(self, nodes: Sequence[Node]) -> None:
        total = merge_local(nodes)
        pieces = segments(total.size, self.size)
        for step in range(self.size - 1):
            target = total[pieces[(self.rank - step - 1) % self.size]]
            message = self._pass_on(total[pieces[(self.rank - step) % self.size]], target.size)
            np.add(target, self.decoded(message), out=target)
        self.round(total[pieces[(self.rank + 1) % self.size]])
        for step in range(self.size - 1):
            target = total[pieces[(self.rank - step) % self.size]]
            message = self._pass_on(total[pieces[(self.rank + 1 - step) % self.size]], target.size)
            self.wire.decode(message, target)

    def _pass_on(self, values: np.ndarray, elements: int) -> np.ndarray:  # type: ignore[type-arg]
        """Send to the next rank while receiving from the one before."""
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        request, message = self.receive(elements, before)
        sending, _kept = self.send(values, after)
        self.wait([request, sending], [before, after])
        return message
