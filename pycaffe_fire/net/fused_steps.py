"""Runs of layers that one op can do for inference: product, factors per channel, sum, ReLU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ..backend.blob import Blob
from ..backend.tensor import Tensor
from ..layers.frozen import After, FrozenOp

if TYPE_CHECKING:
    from .wiring import Wiring


@dataclass
class FusedStep:
    """An op that does the work of several layers, when the last of them would run."""

    layers: tuple[int, ...]
    op: FrozenOp
    bottom: Sequence[Blob]
    top: Sequence[Blob]
    after: After

    @property
    def index(self) -> int:
        return self.layers[-1]

    def run(self) -> None:
        self.op.forward()


@dataclass
class JoinedStep:
    """Neighbours that the backend runs by one call: most of the time between two ops goes to code
    that is in no cache any more."""

    index: int
    bottom: Sequence[Blob]
    run: Callable[[], None]


@dataclass(frozen=True)
class Chain:
    """Layers of which each reads what the one before it has written, and nobody else does."""

    layers: tuple[int, ...]
    top: Blob
    after: After

    def then(self, index: int, top: Blob, after: After) -> Chain:
        return Chain((*self.layers, index), top, after)


def find_fused(net: Wiring, wanted: set[Tensor]) -> list[FusedStep]:
    """All runs of layers that have such an op; `wanted` are values that must be there."""
    finder = _Finder(net, wanted)
    steps: list[FusedStep] = []
    done: set[int] = set()
    for i in range(len(net.layers)):
        step = finder.at(i) if i not in done else None
        if step is not None:
            steps.append(step)
            done.update(step.layers)
    return steps


def join_neighbours(net: Wiring, steps: Iterable[Any]) -> list[Any]:
    """The same work in fewer steps."""

    def joins(step: Any) -> bool:
        return (
            isinstance(step, FusedStep) and step.op.plan.joins
            and not any(net.layers[step.index].loss_weights)
        )  # fmt: skip

    found: list[Any] = []
    for joinable, group in groupby(steps, joins):
        members = list(group)
        if not joinable or len(members) == 1:
            found += members
            continue
        made = {blob.value for step in members for blob in step.top}
        read = [b for step in members for b in step.bottom if b.value not in made]
        run = net.backend.joined([step.op.plan for step in members])
        found.append(JoinedStep(members[-1].index, read, run))
    return found


class _Finder:
    def __init__(self, net: Wiring, wanted: set[Tensor]) -> None:
        self._net, self._wanted = net, wanted
        self._readers: dict[int, list[int]] = {}
        for i, bottom in enumerate(net.bottoms):
            for blob in bottom:
                self._readers.setdefault(id(blob), []).append(i)

    def at(self, index: int) -> FusedStep | None:
        """The longest run that begins with a layer."""
        net, layer = self._net, self._net.layers[index]
        if len(net.bottoms[index]) != 1 or len(net.tops[index]) != 1 or layer.empty:
            return None
        scaled = self._scaled(Chain((index,), net.tops[index][0], After()))
        summed = self._summed(scaled)
        for chain in (summed, scaled) if summed is not None else (scaled,):
            whole = self._rectified(chain)
            op = layer.frozen(net.bottoms[index][0], whole.top, whole.after)
            if op is not None:
                read = [*net.bottoms[index], *([whole.after.addend] if whole.after.addend else [])]
                return FusedStep(whole.layers, op, read, [whole.top], whole.after)
        return None

    def _scaled(self, chain: Chain) -> Chain:
        """With all layers after it that scale channels."""
        while (i := self._next(chain)) is not None:
            layer, after = self._net.layers[i], chain.after
            if layer.per_channel() is None:
                break
            after = replace(after, scalings=(*after.scalings, layer))
            chain = chain.then(i, self._net.tops[i][0], after)
        return chain

    def _rectified(self, chain: Chain) -> Chain:
        """With the ReLU after it."""
        i = self._next(chain)
        slope = self._net.layers[i].relu_slope if i is not None else None
        if i is None or slope is None:
            return chain
        return chain.then(i, self._net.tops[i][0], replace(chain.after, relu=slope))

    def _summed(self, chain: Chain) -> Chain | None:
        """With the sum that adds something else to it, if it is the last of the two."""
        net, i = self._net, self._reader(chain)
        if i is None or not net.layers[i].adds_up or len(net.bottoms[i]) != 2:
            return None
        others = [blob for blob in net.bottoms[i] if blob is not chain.top]
        top = net.tops[i][0]
        if len(others) != 1 or top in net.bottoms[i] or chain.top.value in self._wanted:
            return None
        source = net.bottoms[chain.layers[0]][0].value
        for k in range(chain.layers[0] + 1, i):  # meanwhile
            made = {blob.value for blob in net.tops[k]}
            if k not in chain.layers and (source in made or others[0].value in made):
                return None
        return chain.then(i, top, replace(chain.after, addend=others[0]))

    def _next(self, chain: Chain) -> int | None:
        """The layer that reads a chain's top and nothing else, if the top need not be there."""
        i = self._reader(chain)
        if i is None or len(self._net.bottoms[i]) != 1 or len(self._net.tops[i]) != 1:
            return None
        in_place = self._net.tops[i][0] is chain.top
        return i if in_place or chain.top.value not in self._wanted else None

    def _reader(self, chain: Chain) -> int | None:
        readers = self._readers.get(id(chain.top), [])
        return next((i for i in readers if i > chain.layers[-1]), None)
