"""Groups of layers that one op runs, and taking them apart.

A leader that also runs its followers' backward pass (BatchNorm followed by Scale and ReLU) keeps
less than the layers would keep one by one. Before a pass over a part of the net the layers run
again one by one, so that each has what it needs; the values of blobs stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..backend.blob import Blob

if TYPE_CHECKING:
    from .net import Net


def can_lead(net: Net, leader: int) -> bool:
    """True if no caller can see a gradient that the group does not write.

    In place there is none: the gradient of the leader's top becomes that of its bottom.
    """
    in_place = net.tops[leader][0] is net.bottoms[leader][0]
    return in_place or net.shares_gradients or not net.layers[leader].fuses_backward


def separate_groups(net: Net) -> None:
    """Run the groups that ran as one op again, one layer after the other."""
    for leader, group in net.groups.items():
        layer = net.layers[leader]
        if layer.empty or not (layer.leads and layer.fuses_backward):
            continue
        net.backend.activate()
        mark = net.backend.mark()
        with keeping_values(net.tops[leader]):
            layer.separate(net.bottoms[leader], net.tops[leader])
            for i in group:
                net.layers[i].forward_again(net.bottoms[i], net.tops[i])
        net.backend.write_back(mark)


@contextmanager
def keeping_values(blobs: Sequence[Blob]) -> Iterator[None]:
    """Restore the values of blobs afterwards: weights may have changed since the last pass."""
    values = [(tensor, tensor.copied()) for tensor in {blob.value for blob in blobs}]
    yield
    for tensor, value in values:
        tensor.replace(value)
