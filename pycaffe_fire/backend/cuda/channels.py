"""Sums per channel by several blocks of threads, so that few channels fill a device too."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tensor import Tensor
from .layouts import Order
from .tensor import accumulator, own

if TYPE_CHECKING:
    from . import CudaBackend

BLOCKS = 1024  # several for every multiprocessor of a large device
LEAST = 2048  # elements that are worth a block
COLUMNS = 64  # channels that one block takes where inner is 1 (kernels/channels.cuh)


class Channels:
    """A cut (outer, channels, inner) and its blocks; kernels/channels.cuh has the other half.

    How many blocks there are depends on the shape alone: on every device the sums are the same.
    """

    def __init__(
        self, backend: CudaBackend, outer: int, channels: int, inner: int, sums: int = 1
    ) -> None:
        """`sums`: how many numbers a block leaves for each channel."""
        self._backend = backend
        together = COLUMNS if inner == 1 else 1
        groups = -(-channels // together)
        least = LEAST if inner > 1 else 4 * LEAST  # as the sums of all channels are left
        parts = max(1, min(BLOCKS // groups, outer * inner * together // least))
        self.cut = (outer, channels, inner, parts)
        self.blocks = groups * parts
        self._shares = sums * together * self.blocks if parts > 1 else 0
        backend.reserve(self._shares)

    @classmethod
    def of(cls, backend: CudaBackend, shape: Sequence[int], last: bool, sums: int = 1) -> Channels:
        """Axis 1 of a blob, which may have its channels last."""
        channels = shape[1] if len(shape) > 1 else 1
        outer = Order.of(shape, last).rows
        return cls(backend, outer, channels, prod(shape) // (outer * channels), sums)

    @property
    def sizes(self) -> tuple[int, int]:
        """Channels, and how many elements of one lie together."""
        return self.cut[1:3]

    @property
    def room(self) -> tuple[Any, Any]:
        """Where blocks leave their shares, and count how many have done so."""
        if not self._shares:
            return None, None
        return self._backend.scratch(self._shares), self._backend.arrivals

    def add_sums(self, dy: Tensor, total: Tensor) -> None:
        """Add the channels' sums to a parameter's gradient, and let dy go back through a ReLU that
        it was waiting for, in the same pass."""
        given = own(dy)
        relu, form = given.take_relu(), (given.kind, given.last)
        values = given.read(*form)
        sign = None if relu is None else own(relu.sign).read(*form)
        sums, keep = accumulator(total)
        self._backend.kernels["channel_sums", given.kind].blocks(
            self.blocks, values.array, None if sign is None else sign.array,
            0.0 if relu is None else relu.slope, *self.cut, values.pitch,
            0 if sign is None else sign.pitch, keep,
            None if relu is None else given.write().array, *self.room, sums,
        )  # fmt: skip


def arrivals(xp: Any) -> Any:
    """Counters for blocks, all of which find and leave zeros."""
    return xp.zeros(BLOCKS, np.int32)
