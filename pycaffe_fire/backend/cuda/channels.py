"""Sums per channel by several blocks of threads, so that few channels fill a device too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..tensor import Tensor
from .tensor import accumulator, own, source

if TYPE_CHECKING:
    from . import CudaBackend

BLOCKS = 1024  # several for every multiprocessor of a large device
LEAST = 2048  # elements that are worth a block


class Channels:
    """A cut (outer, channels, inner) and its blocks; kernels/channels.cuh has the other half.

    How many blocks there are depends on the shape alone: on every device the sums are the same.
    """

    def __init__(
        self, backend: CudaBackend, outer: int, channels: int, inner: int, sums: int = 1
    ) -> None:
        """`sums`: how many numbers a block leaves for each channel."""
        self._backend = backend
        parts = max(1, min(BLOCKS // channels, outer * inner // LEAST))
        self.cut = (outer, channels, inner, parts)
        self.blocks = channels * parts
        self._shares = sums * self.blocks if parts > 1 else 0
        backend.reserve(self._shares)

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
        relu, kind = given.take_relu(), dy.kind
        values = source(dy)
        sign = None if relu is None else source(relu.sign, kind)
        sums, keep = accumulator(total)
        self._backend.kernels["channel_sums", kind].blocks(
            self.blocks, values, sign, 0.0 if relu is None else relu.slope, *self.cut, keep,
            None if relu is None else given.overwrite(), *self.room, sums,
        )  # fmt: skip


def arrivals(xp: Any) -> Any:
    """Counters for blocks, all of which find and leave zeros."""
    return xp.zeros(BLOCKS, np.int32)
