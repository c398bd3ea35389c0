"""16-bit copies of weights: one pass makes those of a whole net after an update."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from ..tensor import Array
from .kept import Kept
from .launch import KINDS

if TYPE_CHECKING:
    from . import CudaBackend
    from .tensor import CudaTensor


class WeightCopies:
    """Of tensors that lie in one flat float32 buffer, each as it lies there."""

    def __init__(self, backend: CudaBackend, flat: Array) -> None:
        self._backend, self._flat = backend, flat
        self._kept: dict[str, Kept] = {}
        self._tensors: dict[str, weakref.WeakSet[CudaTensor]] = {}

    def read(self, tensor: CudaTensor, kind: str) -> Array:
        """The copy of a tensor of this buffer, made again if its value has changed."""
        if kind not in self._kept:
            self._kept[kind] = self._backend.keep(self._flat.size, KINDS[kind])
            self._tensors[kind] = weakref.WeakSet()
        copies, tensors = self._kept[kind](), self._tensors[kind]
        known = tensor in tensors
        tensors.add(tensor)
        if not tensor.holds_copy(kind):
            stale = [each for each in tensors if not each.holds_copy(kind)]
            if known and len(stale) == len(tensors):
                self._backend.convert(self._flat, copies)
            else:
                stale = [tensor]
                self._backend.convert(self._part(tensor, self._flat), self._part(tensor, copies))
            for each in stale:
                each.note_copy(kind)
        return self._part(tensor, copies)

    def _part(self, tensor: CudaTensor, whole: Array) -> Array:
        assert tensor.buffer is not None
        start = (int(tensor.buffer.data.ptr) - int(self._flat.data.ptr)) // self._flat.itemsize
        return whole[start : start + tensor.layout.elements]
