"""Base of the layers that only move elements: split axes, permute them, merge them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..backend.blob import Blob
from .base import Layer
from .checks import forbid_in_place
from .description import Storage

Shape = tuple[int, ...]


class Move(NamedTuple):
    """View the bottom as `split`, permute its axes to `order`, view that as `top`."""

    split: Shape
    order: tuple[int, ...]
    top: Shape


class Rearrange(Layer):
    """top = bottom.reshape(split).transpose(order).reshape(top); subclasses say `move`."""

    needs_forward = False
    storage = Storage.MOVED

    def setup(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        forbid_in_place(self, bottom, top)

    def move(self, bottom: Blob) -> Move:
        """Where the elements of this bottom go."""
        raise NotImplementedError

    def reshape(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        self._move = self.move(bottom[0])
        top[0].reshape(*self._move.top)

    def forward(self, bottom: Sequence[Blob], top: Sequence[Blob]) -> None:
        split, order, shape = self._move
        top[0].data[...] = bottom[0].data.reshape(split).transpose(order).reshape(shape)

    def backward(
        self, top: Sequence[Blob], propagate_down: Sequence[bool], bottom: Sequence[Blob]
    ) -> None:
        if propagate_down[0]:
            split, order, _ = self._move
            back = sorted(range(len(order)), key=order.__getitem__)
            moved = top[0].diff.reshape([split[i] for i in order])
            bottom[0].diff[...] = moved.transpose(back).reshape(bottom[0].shape)


def stay(shape: Shape, top: Shape) -> Move:
    """Same elements in the same order under another shape."""
    return Move(shape, tuple(range(len(shape))), top)
