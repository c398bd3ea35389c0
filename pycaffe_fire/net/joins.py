"""Normalisations in training that one op does together with what follows, forward and backward.

In a ResNet a branch ends with BatchNorm and Scale, the other branch is added, a ReLU follows, and a
Split hands the result on. In a MobileNet a depthwise convolution stands between two BatchNorms with
Scale and ReLU. One op goes through memory once for all of them; what the (first) norm gives is not
even written. Who looks at it all the same gets it computed; where somebody holds an array of it, or
a pass covers only a part of these layers, they run one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .. import schema
from ..backend.blob import Blob
from ..backend.tensor import Layout, Tensor
from ..layers.joined import ChannelWindow, JoinedOp, Sum
from ..layers.split import Split
from .groups import keeping_values
from .guard import Guard

if TYPE_CHECKING:
    from .wiring import Wiring


class Join:
    """Neighbouring layers that one op can run: a normalisation and what comes after it."""

    def __init__(self, net: Wiring, members: Sequence[int], after: Sum | ChannelWindow) -> None:
        self.members, self.first, self.last = members, members[0], members[-1]
        self.runs = False  # did the op do the last forward pass?
        self._after = after
        self._norm = net.layers[self.first]
        self._bottom, self._top = net.bottoms[self.first], net.tops[self.first]
        self._leads = self.first in net.groups
        self._one_by_one = [(net.layers[i], net.bottoms[i], net.tops[i]) for i in members]
        self._op: JoinedOp | None = None
        self._planned: list[Layout] = []
        self._shown = False
        self._top[0].value.guard = Guard(self)

    @property
    def hidden(self) -> Tensor | None:
        """A value that takes no memory; None where it takes that of the bottom."""
        value = self._top[0].value
        return None if value is self._bottom[0].value else value

    @property
    def same_memory(self) -> list[tuple[Tensor, Tensor]]:
        """Gradients of which the second may be written where the first is."""
        return self._after.same_memory(self._bottom[0], self._top[0])

    def forward(self) -> None:
        """Run as one op, unless a caller holds an array that it does not write."""
        self.runs = not self._top[0].value.held and self._ready()
        if self.runs and self._op is not None:
            self._shown, self._norm.leads = False, self._leads
            self._op.forward()

    def _ready(self) -> bool:
        """Is there an op for the blobs as they lie now?"""
        blobs = (*self._bottom, *self._top, *self._after.blobs)
        layouts = [blob.value.layout for blob in blobs]
        if list(map(id, layouts)) != list(map(id, self._planned)):
            self._planned = layouts
            self._op = self._norm.joined(self._bottom, self._top, self._after)
        return self._op is not None

    def backward(self) -> None:
        assert self._op is not None  # it ran forward
        self._op.backward()

    def look(self, tensor: Tensor) -> None:
        """Before what the norm gives is given out: see that it is there."""
        if self.runs and not self._shown and self._op is not None:
            self._shown = True
            self._op.show()

    def forget(self) -> None:
        """Its layers are planned again: what the last pass computed is lost."""
        self.runs = False

    def separate(self) -> None:
        """Let the layers be as if they had run one by one."""
        if not self.runs or self._op is None:
            return
        self.look(self._top[0].value)
        with keeping_values([blob for _, _, tops in self._one_by_one for blob in tops]):
            self._op.hide()
            self.runs = False
            for layer, bottom, top in self._one_by_one:
                layer.leads = False
                layer.forward_again(bottom, top)


class Joins:
    """All joins of a net, by the numbers of their layers."""

    def __init__(self, net: Wiring) -> None:
        self._joins = list(_find(net))
        self._of = {i: join for join in self._joins for i in join.members}

    def __iter__(self) -> Iterator[Join]:
        return iter(self._joins)

    def of(self, layer: int) -> Join | None:
        """The join that a layer belongs to."""
        return self._of.get(layer)

    def separate(self) -> None:
        """Let all layers be as if they had run one by one."""
        for join in self._joins:
            join.separate()

    def dissolve(self) -> None:
        """From now on let layers run one by one: somebody may change blobs between them."""
        self.separate()
        self._joins, self._of = [], {}


def _find(net: Wiring) -> Iterator[Join]:
    if net.phase == schema.TRAIN and not net.param.debug_info and net.backend.sums_norms:
        last = -1
        for index in range(len(net.layers)):
            found = _join_at(net, index) if index > last else None
            if found is not None:
                last = found.last
                yield found


def _join_at(net: Wiring, norm: int) -> Join | None:
    """The join that begins with a layer, if it is a norm."""
    after = norm + 1 + len(net.groups.get(norm, ()))
    if not _can_join(net, norm) or after >= len(net.layers):
        return None
    return _with_sum(net, norm, after) or _with_window(net, norm, after)


def _can_join(net: Wiring, norm: int) -> bool:
    layer = net.layers[norm]
    return layer.joins and layer.can_lead(layer.param)


def _with_window(net: Wiring, norm: int, convolution: int) -> Join | None:
    """The join of a norm, a window over each channel of its top, and a norm of the result."""
    last = convolution + 1
    window = net.layers[convolution].channel_window
    if window is None or convolution in net.groups or last >= len(net.layers):
        return None
    x, z = net.tops[norm][0], net.tops[convolution][0]
    chain = [(norm, x), (last, z)]  # both in place
    if net.bottoms[convolution] != [x] or not _can_join(net, last):
        return None
    if any(net.bottoms[i] != [blob] or net.tops[i] != [blob] for i, blob in chain):
        return None
    groups = [net.groups.get(i, ()) for i, _ in chain]
    members = [norm, *groups[0], convolution, last, *groups[1]]
    if members != list(range(norm, members[-1] + 1)) or not all(_plain(net, i) for i in members):
        return None
    if not net.propagate_down[norm][0] or not net.propagate_down[convolution][0]:
        return None
    followers = [[net.layers[i] for i in group] for group in groups]
    layers = net.layers
    return Join(net, members, ChannelWindow(
        followers[0], layers[convolution], window, z, layers[last], followers[1]
    ))  # fmt: skip


def _with_sum(net: Wiring, norm: int, add: int) -> Join | None:
    """The join of a norm and a sum right after it that takes its top."""
    group = net.groups.get(norm, ())
    scale = net.layers[group[0]] if group else None
    added = _added(net, add, net.tops[norm][0])
    if added is None or len(group) > 1 or (scale and scale.relu_slope is not None):
        return None
    total, rest = net.tops[add][0], net.groups.get(add, ())
    relu = net.layers[rest[0]].relu_slope if rest else None
    members, readers = [norm, *group, add, *rest], [total]
    after = members[-1] + 1
    if after < len(net.layers) and _splits(net, after, total):
        members, readers = [*members, after], net.tops[after]
    if members != list(range(norm, members[-1] + 1)) or not all(_plain(net, i) for i in members):
        return None
    wanted = (net.propagate_down[norm][0], net.propagate_down[add][added])
    return Join(net, members, Sum(scale, net.bottoms[add][added], relu, total, readers, wanted))


def _splits(net: Wiring, index: int, blob: Blob) -> bool:
    """True if a layer is a Split of this blob."""
    return isinstance(net.layers[index], Split) and net.bottoms[index] == [blob]


def _added(net: Wiring, add: int, y: Blob) -> int | None:
    """The number of the bottom that a layer adds to `y`, if that is what it does."""
    bottoms, wanted = net.bottoms[add], net.propagate_down[add]
    if not net.layers[add].adds_up or len(bottoms) != 2 or net.tops[add][0] in bottoms:
        return None
    mine = [k for k, blob in enumerate(bottoms) if blob is y]
    return 1 - mine[0] if len(mine) == 1 and wanted[mine[0]] else None


def _plain(net: Wiring, index: int) -> bool:
    """Does a layer run backward, and is it no loss?"""
    return net.need_backward[index] and not any(net.layers[index].loss_weights)
