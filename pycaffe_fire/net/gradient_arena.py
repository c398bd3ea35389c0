"""Memory for gradients: blobs whose gradients are never alive together share it.

A blob's gradient is born when the layer above it runs backward and dies when the layer that made
the blob has run. Offsets come from a greedy placement, largest first, over those lifetimes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..backend.tensor import Tensor

if TYPE_CHECKING:
    from .net import Net

ALIGNMENT = 16  # elements


@dataclass
class Lifetime:
    """A tensor that is in use while layers last..first run backward."""

    tensor: Tensor
    first: int
    last: int
    offset: int = 0

    @property
    def elements(self) -> int:
        return -(-self.tensor.words // ALIGNMENT) * ALIGNMENT

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def share_gradients(net: Net) -> None:
    """Bind the gradients of all blobs inside the net to one arena."""
    lifetimes = _lifetimes(net)
    size = _place(lifetimes)
    arena = net.backend.empty(size)
    for life in lifetimes:
        life.tensor.bind(arena[life.offset : life.offset + life.elements])
        life.tensor.clear()


def planned_elements(net: Net, shared: bool) -> tuple[int, int]:
    """How many float32 words the net's blobs will take: values, and gradients once it has run."""
    values = {id(blob.value): blob.value for tops in net.tops for blob in tops}
    lifetimes = _lifetimes(net)
    gradients = _place(lifetimes) if shared else sum(life.elements for life in lifetimes)
    return sum(tensor.words for tensor in values.values()), gradients


def _lifetimes(net: Net) -> list[Lifetime]:
    """Gradients the outside may look at (inputs, outputs, losses) are left alone."""
    kept = {id(net.blobs[name].gradient) for name in (*net.inputs, *net.outputs)}
    for tops, layer in zip(net.tops, net.layers, strict=True):
        kept |= {
            id(blob.gradient)
            for blob, weight in zip(tops, layer.loss_weights, strict=False)
            if weight
        }
    found: dict[int, Lifetime] = {}
    for i, (bottoms, tops) in enumerate(zip(net.bottoms, net.tops, strict=True)):
        for blob in (*bottoms, *tops):
            tensor = blob.gradient
            if id(tensor) in kept or not net.need_backward[i]:
                continue
            life = found.setdefault(id(tensor), Lifetime(tensor, i, i))
            life.first, life.last = min(life.first, i), max(life.last, i)
    return list(found.values())


def _place(lifetimes: list[Lifetime]) -> int:
    """Give every lifetime an offset where it overlaps no other; returns the size of the arena."""
    placed: list[Lifetime] = []
    for life in sorted(lifetimes, key=lambda x: -x.elements):
        offset = 0
        for other in sorted((p for p in placed if p.meets(life)), key=lambda x: x.offset):
            if offset + life.elements <= other.offset:
                break
            offset = max(offset, other.offset + other.elements)
        life.offset = offset
        placed.append(life)
    return max((life.offset + life.elements for life in placed), default=0)
