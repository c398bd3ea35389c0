"""Values of norms that are read on the way up and never again: they lie where gradients will be.

A norm in place keeps its input for backward. Where its result goes into a sum or a pooling layer,
which do without it in backward, its memory could be used again as soon as they have run. Who looks
at such a blob all the same gets it computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..backend.tensor import Array, Tensor
from ..layers.batch_norm import BatchNorm
from .arena import Lifetime
from .guard import Guard

if TYPE_CHECKING:
    from .net import Net


class PassingValue:
    """One of them: the norm's, from the layer that makes it to the one that reads it."""

    def __init__(self, norm: BatchNorm, tensor: Tensor, source: int, first: int, last: int) -> None:
        self._norm, self._source = norm, source  # the layer that writes the norm's input
        self.lifetime = Lifetime(tensor, first, last)

    def lie_in(self, arena: Array) -> None:
        life = self.lifetime
        self._norm.pass_on(arena[life.offset : life.offset + life.elements])
        life.tensor.guard = Guard(self)

    def before_forward(self, start: int) -> None:
        """A pass from layer `start` on writes the norm's input again, or reads its result."""
        if start <= self._source:
            self._norm.take_back()
        else:
            self._norm.show_passed()

    def look(self, tensor: Tensor) -> None:
        self._norm.show_passed()


def passing_values(net: Net) -> Iterator[PassingValue]:
    for index, group in net.groups.items():
        layer, blob = net.layers[index], net.tops[index][0]
        if not isinstance(layer, BatchNorm) or net.joins.of(index) or blob.value.guard:
            continue
        writers = [i for i, tops in enumerate(net.tops) if blob in tops and i not in group]
        readers = [i for i, bottoms in enumerate(net.bottoms) if blob in bottoms and i > group[-1]]
        if len(writers) != 2 or writers[1] != index or len(readers) != 1:
            continue
        join = net.joins.of(readers[0])
        last = readers[0] if join is None else join.last
        layer.plan_ahead(leads=True)
        if net.layers[readers[0]].forgets and layer.can_pass and blob.name not in net.outputs:
            yield PassingValue(layer, blob.value, writers[0], index, last)
