"""Ops for training that do the work of a layer and of the sum after it, for net/joins.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..backend.blob import Blob

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


@dataclass(frozen=True)
class JoinedOp:
    """The layer's own top is not written by `forward`; `show` does that, when it is looked at.

    `hide` gives a bottom that is the same blob its value back. `backward` is told whether the
    bottom and the addend want gradients, and adds to those of weights that learn.
    """

    forward: Callable[[], None]
    backward: Callable[[bool, bool], None]
    show: Callable[[], None]
    hide: Callable[[], None]
