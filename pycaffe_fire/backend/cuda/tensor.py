"""Tensors in device memory, with a host copy for whoever looks from outside.

The states of a tensor serve once more: NATIVE is the device's copy, PLAIN the host's. Layers see
device arrays; `host` hands out a NumPy array that may be written in place, as pycaffe's users do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...blob import Blob
from ..tensor import NATIVE, PLAIN, ZERO, Array, Tensor


class CudaTensor(Tensor):
    """Plain layout only."""

    @property
    def array(self) -> Array:
        device = super().array
        self.fresh = NATIVE  # the caller may write to it, so a host copy counts no longer
        return device

    @property
    def host(self) -> Array:
        """A NumPy array: what is written into it is uploaded before the device reads again."""
        plain = self._fresh_plain()
        self.fresh = PLAIN
        self.backend.exported.add(self)
        return plain.view()

    def _fresh_plain(self) -> Array:
        if self._plain is None or self._plain.shape != self.shape:
            self._plain = np.empty(self.shape, self.backend.dtype)
        return super()._fresh_plain()


class HostBlob(Blob):
    """A blob of a device as the outside sees it: `data` and `diff` are NumPy arrays."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self.name, self.backend = blob.name, blob.backend
        self.value, self.gradient = blob.value, blob.gradient

    @property
    def shape(self) -> tuple[int, ...]:
        return self._blob.shape

    @property
    def data(self) -> Array:
        return self.value.host.reshape(self.shape)

    @property
    def diff(self) -> Array:
        return self.gradient.host.reshape(self.shape)

    def reshape(self, *shape: int) -> None:
        self._blob.reshape(*shape)


def source(tensor: Tensor) -> Array:
    """Its flat device memory, to read."""
    tensor.sync()
    assert tensor.buffer is not None
    return tensor.buffer[: tensor.layout.elements]


def target(tensor: Tensor) -> Array:
    """Its flat device memory, to overwrite completely."""
    tensor.allocate()
    tensor.fresh = NATIVE
    assert tensor.buffer is not None
    return tensor.buffer[: tensor.layout.elements]


def accumulator(tensor: Tensor) -> tuple[Array, float]:
    """Its flat device memory, to add to, and how much of what is there to keep: 0 or 1."""
    keep = 0.0 if tensor.fresh == ZERO else 1.0
    if keep:
        tensor.sync()
    return target(tensor), keep


def optional(blob: Blob | None) -> Any:
    """A blob's memory, to read, or None: kernels take it for a null pointer."""
    return None if blob is None else source(blob.value)
