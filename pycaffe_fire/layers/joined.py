"""Ops for training that do the work of a normalisation and of what follows it, for net/joins.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..backend.blob import Blob
from ..backend.plans import Window
from ..backend.tensor import Tensor

if TYPE_CHECKING:
    from .base import Layer


@dataclass(frozen=True)
class Sum:
    """What follows a layer: maybe a Scale of channels, then another blob is added."""

    scale: Layer | None
    addend: Blob
    relu: float | None  # the slope below 0 of a ReLU after the sum
    total: Blob
    readers: Sequence[Blob]  # whose gradients make up the total's: the total itself, or a Split's
    wanted: tuple[bool, bool]  # do the bottom and the addend want gradients?

    @property
    def blobs(self) -> Sequence[Blob]:
        """Blobs besides the layer's own."""
        return self.addend, self.total

    def same_memory(self, x: Blob, y: Blob) -> list[tuple[Tensor, Tensor]]:
        """Gradients of which the second may be written where the first is."""
        pairs = [(self.total, self.addend)]
        if y is not x:
            pairs.append((self.total, y))
        if len(self.readers) == 2:
            pairs.append((self.readers[1], x))
        return [(a.gradient, b.gradient) for a, b in pairs if a.value.layout == b.value.layout]


@dataclass(frozen=True)
class ChannelWindow:
    """What follows a layer: maybe a Scale and a ReLU, then a window over each channel, and another
    normalisation of its result, maybe with a Scale and a ReLU; all norms are in place."""

    followers: Sequence[Layer]
    convolution: Layer
    window: Window
    top: Blob
    norm: Layer
    norm_followers: Sequence[Layer]

    @property
    def blobs(self) -> Sequence[Blob]:
        return (self.top,)

    def same_memory(self, x: Blob, y: Blob) -> list[tuple[Tensor, Tensor]]:
        return []


@dataclass(frozen=True)
class JoinedOp:
    """The layer's own top is not written by `forward`; `show` does that, when it is looked at.

    `hide` gives a bottom that is the same blob its value back. `backward` adds to the gradients of
    weights that learn.
    """

    forward: Callable[[], None]
    backward: Callable[[], None]
    show: Callable[[], None]
    hide: Callable[[], None]
