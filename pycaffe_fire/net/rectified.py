"""ReLUs in place whose gradient the layer that reads them writes, instead of their going over it.

Their backward pass is a matter of memory: it reads what was just written, and writes it again. Some
plans can leave out the numbers that a ReLU would set to 0 (see `rectified` in backend/plans.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .net import Net


class Reading(NamedTuple):
    """A ReLU, and where its result is read."""

    relu: int
    reader: int
    bottom: int


class RectifiedGradients:
    """Those of one net."""

    def __init__(self, net: Net) -> None:
        self._readings, self._allowed = _readings(net), True
        self.done: set[int] = set()  # ReLUs that have nothing to do in this backward pass

    def dissolve(self) -> None:
        """From now on ReLUs do their own work: somebody may look before they do."""
        self._allowed = False

    def begin(self, net: Net, first: int, last: int) -> None:
        """A backward pass runs over layers first..last."""
        self.done.clear()
        allowed = self._allowed and not net.debug_info
        for relu, reader, bottom in self._readings:
            rectified = net.layers[reader].rectified
            if rectified is None:
                continue
            rectified.discard(bottom)
            inside = reader <= first and relu >= last and net.need_backward[reader]
            alone = net.joins.of(relu) is None and net.joins.of(reader) is None
            if allowed and inside and alone and net.propagate_down[reader][bottom]:
                rectified.add(bottom)
                self.done.add(relu)


def _readings(net: Net) -> list[Reading]:
    """After splits are inserted, the next reader of a blob is its only one."""
    found: list[Reading] = []
    relus: dict[int, int] = {}  # by the blob that each has worked on last
    for i, (layer, bottoms, tops) in enumerate(zip(net.layers, net.bottoms, net.tops, strict=True)):
        found += [
            Reading(relus[id(blob)], i, j) for j, blob in enumerate(bottoms) if id(blob) in relus
        ]
        for blob in tops:
            relus.pop(id(blob), None)
        leader = net.layers[net.leader_of.get(i, i)]
        in_place = layer.relu_slope == 0 and bottoms[0] is tops[0]
        if in_place and net.need_backward[i] and not leader.fuses_backward:
            relus[id(tops[0])] = i
    return found
