"""ReLUs in place whose gradient the layer that reads them writes, instead of their going over it.

Their backward pass is a matter of memory: it reads what was just written, and writes it again. Some
plans can leave out the numbers that a ReLU would set to 0 (see `rectified` in backend/plans.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .net import Net


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
        for reader, relus in self._readings.items():
            rectified = net.layers[reader].rectified
            if rectified is None:
                continue
            rectified.clear()
            if not allowed or reader > first or not net.need_backward[reader]:
                continue
            for bottom, relu in relus.items():
                alone = net.joins.of(relu) is None and net.joins.of(reader) is None
                if relu >= last and alone and net.propagate_down[reader][bottom]:
                    rectified.add(bottom)
                    self.done.add(relu)


def _readings(net: Net) -> dict[int, dict[int, int]]:
    """For each layer the ReLUs whose results it reads, by its bottoms. After splits are inserted,
    the next reader of a blob is its only one."""
    found: dict[int, dict[int, int]] = {}
    relus: dict[int, int] = {}  # by the blob that each has worked on last
    for i, (layer, bottoms, tops) in enumerate(zip(net.layers, net.bottoms, net.tops, strict=True)):
        read = {j: relus[id(blob)] for j, blob in enumerate(bottoms) if id(blob) in relus}
        if read:
            found[i] = read
        for blob in tops:
            relus.pop(id(blob), None)
        leader = net.layers[net.leader_of.get(i, i)]
        in_place = layer.relu_slope == 0 and bottoms[0] is tops[0]
        if in_place and net.need_backward[i] and not leader.fuses_backward:
            relus[id(tops[0])] = i
    return found
