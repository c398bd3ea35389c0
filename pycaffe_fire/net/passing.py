"""Values of norms that are read on the way up and never again: they lie where gradients will be.

A norm in place keeps its input for backward. Where its result goes into a sum or a pooling layer,
which do without it in backward, its memory could be used again as soon as they have run. Who looks
at such a blob all the same gets it computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..backend.tensor import Array, Tensor
from ..layers.base import Layer
from .arena import Lifetime
from .guard import Guard

if TYPE_CHECKING:
    from .net import Net


class PassingValue:
    """One of them: the norm's, from the layer that makes it to the one that reads it."""

    def __init__(self, norm: Layer, tensor: Tensor, source: int, first: int, last: int) -> None:
        self._norm, self._source = norm, source  # the layer that writes the norm's input
        self.lifetime = Lifetime(tensor, first, last)

    def lie_in(self, arena: Array) -> None:
        life, plan = self.lifetime, self._norm.passing
        assert plan is not None
        plan.pass_on(arena[life.offset : life.offset + life.elements])
        life.tensor.guard = Guard(self)

    def before_forward(self, start: int, last: int) -> None:
        """A pass over layers start..last may write the norm's input again."""
        plan = self._norm.passing
        if plan is not None and start <= self._source <= last:
            plan.take_back()

    def look(self, tensor: Tensor | None = None) -> None:
        """Before somebody reads it who does not come right after the norm."""
        plan = self._norm.passing
        if plan is not None:
            plan.show_passed()


def passing_values(net: Net) -> Iterator[PassingValue]:
    for index, group in net.groups.items():
        layer, blob = net.layers[index], net.tops[index][0]
        if net.joins.of(index) or blob.value.guard or blob.name in net.outputs:
            continue
        writers = [i for i, tops in enumerate(net.tops) if blob in tops and i not in group]
        readers = [i for i, bottoms in enumerate(net.bottoms) if blob in bottoms and i > group[-1]]
        if len(writers) != 2 or writers[1] != index or len(readers) != 1:
            continue
        join = net.joins.of(readers[0])
        last = readers[0] if join is None else join.last
        if not net.layers[readers[0]].forgets:
            continue
        layer.plan_ahead(leads=True)
        if layer.passing is not None:
            yield PassingValue(layer, blob.value, writers[0], index, last)
