"""Memory that tensors share which are never alive together.

Offsets come from a greedy placement, largest first, over lifetimes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..backend.tensor import Tensor

ALIGNMENT = 16  # elements


@dataclass
class Lifetime:
    """A tensor that is in use from one number (of a layer or step) to another, both included, and
    others of its size that may lie in its place."""

    tensor: Tensor
    first: int
    last: int
    offset: int = 0
    others: list[Tensor] = field(default_factory=list)

    @property
    def elements(self) -> int:
        return -(-self.tensor.words // ALIGNMENT) * ALIGNMENT

    def meets(self, other: Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def place(lifetimes: list[Lifetime]) -> int:
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
