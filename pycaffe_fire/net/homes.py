"""Bottoms of a Concat that are written where it would copy them: into the memory of its top."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..backend.blob import Blob
from ..backend.tensor import Tensor
from ..layers import Layer


class LayerStep(Protocol):
    """A layer that runs as ever."""

    layer: Layer
    bottom: Sequence[Blob]
    top: Sequence[Blob]


class Homes:
    """Which tensors lie in others."""

    def __init__(self) -> None:
        self.made: set[Tensor] = set()  # of tensors that others lie in, and that fill them
        self._place: dict[Tensor, tuple[Tensor, int]] = {}

    @classmethod
    def find(cls, steps: Iterable[LayerStep], safe: set[Tensor]) -> Homes:
        """For steps in the order in which they run; `safe` tensors have memory of their own."""
        found = cls()
        for step in steps:
            places = step.layer.places_in_top()
            if places is not None:
                found._settle([blob.value for blob in step.bottom], step.top[0].value, places, safe)
        return found

    def _settle(
        self, guests: Sequence[Tensor], home: Tensor, places: Sequence[int], safe: set[Tensor]
    ) -> None:
        different = len({*guests, home}) == len(guests) + 1
        if different and not {*guests, home} & (safe | self._place.keys()):
            self.made.add(home)
            for guest, start in zip(guests, places, strict=True):
                self._place[guest] = home, start

    @property
    def guests(self) -> Iterable[Tensor]:
        return self._place

    def of(self, tensor: Tensor) -> tuple[Tensor, int]:
        """The tensor in whose memory one lies, perhaps itself, and how many elements from its start
        on."""
        start = 0
        while tensor in self._place:
            tensor, further = self._place[tensor]
            start += further
        return tensor, start
