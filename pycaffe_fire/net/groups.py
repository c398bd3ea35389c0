"""Groups of layers that ran as one op, for those who look at or run a part of one.

A leader that does its followers' backward too (BatchNorm followed by Scale and ReLU) leaves out
what lies between them. Caffe has it, so it is computed when it is asked for; a net that runs as a
whole pays nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..backend.blob import Blob, BlobView
from ..backend.tensor import Array

if TYPE_CHECKING:
    from .wiring import Wiring


def separate_cut(net: Wiring, first: int, last: int) -> None:
    """Groups of which a backward pass over layers first..last would run only a part run forward
    again, one layer after the other; so they do then in backward."""  # fmt: skip
    for leader, group in net.groups.items():
        layer = net.layers[leader]
        inside = {last <= i <= first for i in (leader, *group)}
        if layer.leads and layer.fuses_backward and len(inside) > 1:
            net.backend.activate()
            mark = net.backend.mark()
            layer.separate(net.bottoms[leader], net.tops[leader])
            for i in group:
                net.layers[i].forward(net.bottoms[i], net.tops[i])
            net.backend.write_back(mark)


class Unfinished:
    """The leaders whose tops hold their followers' gradient instead of their own.

    They are those that ran backward as one op and not in place: nobody needed the gradient between
    them.
    """

    def __init__(self, net: Wiring) -> None:
        # A net that is dropped must be gone at once, with its threads and files: no way back to it.
        self._net = weakref.ref(net)
        self._candidates = {
            leader
            for leader in net.groups
            if net.layers[leader].fuses_backward
            and net.tops[leader][0] is not net.bottoms[leader][0]
        }
        self._waiting: set[int] = set()

    def begin(self, first: int) -> None:
        """A backward pass from layer `first` on writes those gradients again."""
        self._waiting = {leader for leader in self._waiting if leader > first}

    def note(self, leader: int) -> None:
        """This layer has run backward."""
        net = self._net()
        if net is not None and leader in self._candidates and net.layers[leader].leads:
            self._waiting.add(leader)

    def watch(self, blobs: dict[str, Blob]) -> None:
        """Let who reads such a gradient through these blobs see the leader's own."""
        net = self._net()
        assert net is not None  # it is being made
        for leader in self._candidates:
            name = net.tops[leader][0].name
            blobs[name] = WatchedBlob(blobs[name], partial(self._finish, leader))

    def _finish(self, leader: int) -> None:
        net = self._net()
        if net is None or leader not in self._waiting:
            return
        self._waiting.remove(leader)
        for i in reversed(net.groups[leader]):
            layer = net.layers[i]
            learns = layer.param_propagate_down
            layer.param_propagate_down = [False] * len(learns)  # those gradients are there
            mark = net.backend.mark()
            layer.backward(net.tops[i], [True], net.bottoms[i])
            net.backend.write_back(mark)
            layer.param_propagate_down = learns


class WatchedBlob(BlobView):
    """Another blob, whose gradient is seen to before anybody looks at it."""

    def __init__(self, blob: Blob, before_diff: Callable[[], None]) -> None:
        super().__init__(blob)
        self._before_diff = before_diff

    @property
    def diff(self) -> Array:
        self._before_diff()
        return self._blob.diff
