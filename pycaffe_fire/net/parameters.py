"""The learnable parameters of a net, laid end to end: one flat buffer of weights, one of gradients.

Updates are elementwise, so weights, gradients and history need only share a layout; an update is
one pass over the flat buffers and a gradient bucket is a slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..backend.base import Backend
from ..backend.blob import Blob
from ..backend.tensor import NATIVE, Array, Tensor

ALIGNMENT = 16  # elements: every parameter starts on a cache line


@dataclass
class Parameter:
    """One learnable blob with its place in the flat buffers and its multipliers."""

    name: str
    blob: Blob
    lr_mult: float
    decay_mult: float
    start: int = 0
    stop: int = 0


class Parameters:
    """Owns the flat buffers. A net that borrows its weights has gradients of its own only."""

    def __init__(
        self, backend: Backend, parameters: Sequence[Parameter], lender: Parameters | None
    ) -> None:
        self.backend = backend
        self.items = list(parameters)
        self.size = 0
        for p in self.items:
            p.start = self.size
            p.stop = p.start + p.blob.value.layout.elements
            self.size += -(-(p.stop - p.start) // ALIGNMENT) * ALIGNMENT
        self.gradients: Array | None = None
        self.trained = False  # does a solver count on the place of the weights?
        self.weights: Array = lender.weights if lender is not None else self._gather()

    def _gather(self) -> Array:
        weights = self.zeros()
        for p in self.items:
            p.blob.value.drop_copy()
            p.blob.value.move(weights[p.start : p.stop])
            p.blob.value.pinned = p.blob.gradient.pinned = True
        return weights

    def zeros(self) -> Array:
        """A flat buffer of the same size (gradients, history)."""
        buffer = self.backend.empty(self.size)
        buffer[...] = 0
        return buffer

    def bind_gradients(self, buffer: Array | None = None) -> None:
        """Put all gradients into `buffer` (a new one if None), keeping nothing of the old."""
        if buffer is not None and buffer is self.gradients:
            return
        if buffer is None:
            buffer = self.zeros()
        self.gradients = buffer
        for p in self.items:
            p.blob.gradient.bind(buffer[p.start : p.stop])

    def gather_gradients(self) -> Array:
        """All gradients in one buffer, with what the blobs hold."""
        if self.gradients is None:
            self.gradients = self.zeros()
            for p in self.items:
                p.blob.gradient.move(self.gradients[p.start : p.stop])
        self.sync_gradients()
        return self.gradients

    def clear_gradients(self) -> None:
        """Caffe's ClearParamDiffs, without touching memory."""
        for p in self.items:
            p.blob.gradient.clear()

    def sync_gradients(self, place: slice | None = None) -> None:
        """Make the flat gradients hold what the blobs mean (zeros where nothing was written).

        `place` limits it to the parameters that start or reach into that slice.
        """
        for p in self.items:
            if place is not None and (p.stop <= place.start or p.start >= place.stop):
                continue
            if not p.blob.gradient.fresh & NATIVE:
                p.blob.gradient.sync()

    def sync_weights(self) -> None:
        """Make the flat weights hold what the blobs mean (after Python code wrote to them)."""
        for p in self.items:
            if not p.blob.value.fresh & NATIVE:
                p.blob.value.sync()

    def updated(self) -> None:
        """Tell the blobs that the flat weights were written."""
        for p in self.items:
            p.blob.value.fresh = NATIVE

    def like(self, index: int, buffer: Array) -> Tensor:
        """A slice of a flat buffer (say, history) as a tensor shaped and laid out as parameter i.

        The way in and out of the native layout for anything that accompanies a parameter.
        """
        p = self.items[index]
        tensor = self.backend.tensor(p.blob.shape)
        tensor.lay_out(p.blob.value.layout)
        tensor.bind(buffer[p.start : p.stop])
        tensor.fresh = NATIVE
        return tensor
