"""Tensors in device memory, with a host copy for code outside.

The states of a tensor serve once more: NATIVE is the device's copy, PLAIN the host's. Layers see
device arrays; `host` hands out a NumPy array that may be written in place, as pycaffe's users do.

A tensor may be stored in 16 bits. Kernels read it as it is, or as another type through a copy that
is kept and made again when the value has changed: so weights have a 16-bit copy beside them. Array
code gets a float32 array, which is stored again when its layer has run (Backend.write_back).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..blob import Blob, BlobView
from ..tensor import FLOAT32, NATIVE, PLAIN, ZERO, Array, Tensor
from .kept import Kept
from .launch import KINDS, words

if TYPE_CHECKING:
    from . import CudaBackend


class Rectifier(NamedTuple):
    """A ReLU that a gradient has yet to go back through."""

    sign: Tensor  # has the sign of the ReLU's input
    slope: float


class CudaTensor(Tensor):
    """Plain layout only.

    A gradient may wait for its way back through a ReLU in place, because the layer below can often
    do that in a pass of its own (take_relu); who else reads it finds it done.
    """

    backend: CudaBackend

    def __init__(self, backend: CudaBackend, shape: Sequence[int]) -> None:
        self._view: Array | None = None  # given to array code, and the value while it is there
        self._copies: dict[str, Kept] = {}
        self._valid: set[str] = set()  # kinds of copies that hold the value
        self._relu: Rectifier | None = None
        self._zeros = False  # is the memory known to hold zeros?
        super().__init__(backend, shape)

    @property
    def fresh(self) -> int:
        return self._fresh

    @fresh.setter
    def fresh(self, state: int) -> None:
        """Code that says where the value is has changed it."""
        self._fresh = state
        self._valid.clear()
        self._view = self._relu = None
        self._zeros = False

    @property
    def words(self) -> int:
        return words(self.layout.elements, self.kind)

    def store_as(self, kind: str) -> None:
        if kind != self.kind:
            self.kind = kind
            self.bind(None)
            self.clear()

    def allocate(self) -> None:
        if self.buffer is None:
            self.bind(self.backend.xp.empty(self.layout.elements, KINDS[self.kind]))

    def bind(self, buffer: Array | None) -> None:
        """A float32 buffer of at least `words` elements will do for any kind."""
        self._zeros = False
        if buffer is not None and buffer.dtype != KINDS[self.kind]:
            buffer = buffer.view(KINDS[self.kind])
        super().bind(buffer)

    def sync(self) -> None:
        self.write_back()
        was_zero = self.fresh == ZERO
        super().sync()
        self._zeros |= was_zero
        relu = self.take_relu()
        if relu is not None:
            values, sign = self.overwrite(), source(relu.sign, self.kind)
            kernel = self.backend.kernels["relu_backward", self.kind]
            kernel(values.size, sign, values, relu.slope, values)

    def clear(self) -> None:
        """Gradients that nobody writes (of weights that do not learn) need be zeroed only once."""
        if not self._zeros:
            super().clear()

    def rectify_later(self, relu: Rectifier) -> None:
        self.sync()
        self.fresh = NATIVE
        self._relu = relu
        self.backend.deferred.append(self)

    def take_relu(self) -> Rectifier | None:
        """The ReLU that this gradient has yet to go back through; the caller does it."""
        relu, self._relu = self._relu, None
        return relu

    def overwrite(self) -> Array:
        """Its flat memory, all of which the caller is about to write."""
        self.allocate()
        self.fresh = NATIVE
        assert self.buffer is not None
        return self.buffer[: self.layout.elements]

    @property
    def array(self) -> Array:
        if self.kind == FLOAT32:
            device = super().array
            self.fresh = NATIVE  # the caller may write to it, so a host copy counts no longer
            return device
        if self._view is None:
            view = self.backend.converted(source(self), FLOAT32)
            self.fresh = NATIVE
            self._view = view
            self.backend.viewed.append(self)
        return self._view.reshape(self.shape)

    def write_back(self) -> None:
        """Store what array code has made of the value; its array counts no longer."""
        if self._view is not None:
            view, self._view = self._view, None
            assert self.buffer is not None
            self.backend.convert(view, self.buffer[: view.size])

    def read_as(self, kind: str) -> Array:
        """The value in flat memory, stored as `kind`."""
        self.sync()
        assert self.buffer is not None
        elements = self.layout.elements
        native = self.buffer[:elements]
        if kind == self.kind:
            return native
        if kind not in self._copies or self._copies[kind]().size < elements:
            self._copies[kind] = self.backend.keep(elements, KINDS[kind])
        copy = self._copies[kind]()[:elements]
        if kind not in self._valid:
            self.backend.convert(native, copy)
            self._valid.add(kind)
        return copy

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


class HostBlob(BlobView):
    """A blob of a device as the outside sees it: `data` and `diff` are NumPy arrays."""

    @property
    def data(self) -> Array:
        return self.value.host.reshape(self.shape)

    @property
    def diff(self) -> Array:
        return self.gradient.host.reshape(self.shape)


def source(tensor: Tensor, kind: str | None = None) -> Array:
    """Its flat device memory, to read: as it is stored, or as `kind`."""
    return own(tensor).read_as(kind or tensor.kind)


def target(tensor: Tensor) -> Array:
    """Its flat device memory, to overwrite completely."""
    return own(tensor).overwrite()


def own(tensor: Tensor) -> CudaTensor:
    """A tensor of ours, as all are here."""
    assert isinstance(tensor, CudaTensor)
    return tensor


def accumulator(tensor: Tensor) -> tuple[Array, float]:
    """Its flat device memory, to add to, and how much of what is there to keep: 0 or 1."""
    keep = 0.0 if tensor.fresh == ZERO else 1.0
    if keep:
        tensor.sync()
    return target(tensor), keep


def optional(blob: Blob | None) -> Any:
    """A blob's memory, to read, or None: kernels take it for a null pointer."""
    return None if blob is None else source(blob.value)
