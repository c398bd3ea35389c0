"""A window over each channel between two batch normalisations, as one op."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..blob import Blob
from ..compiled import available, use_threads
from ..kernels import depthwise as kernels
from ..kernels.depthwise import TAPS
from ..kernels.tiles import LANES
from ..plans import Norm, NormWindowPlan, RunningMoments, Window
from ..tensor import NATIVE, Array, Tensor
from .grids import added_to, grid_of, read, seen, written
from .layouts import Descriptor, OneDNNTensor
from .norms import Norms, apart

if TYPE_CHECKING:
    from collections.abc import Sequence

    from . import OneDNNBackend


class NormWindow(NormWindowPlan):
    """The blob of x keeps its input until somebody wants to see more; z's is kept elsewhere."""

    @staticmethod
    def supports(x: Blob, w: Blob, window: Window, z: Blob) -> bool:
        fits = window.kernel == (3, 3) and window.pad == window.dilation == (1, 1)
        if not available() or not fits or window.stride not in ((1, 1), (2, 2)) or 0 in x.shape:
            return False
        (_, outer, _, block), (_, *target) = grid_of(x.value.layout), grid_of(z.value.layout)
        alike = (outer, block) == (target[0], target[2])
        return alike and block % LANES == 0 and _lies_in_blocks(w.value.layout, block)

    def __init__(
        self, backend: OneDNNBackend, x: Blob, before: Norm, w: Blob, window: Window, z: Blob,
        after: Norm,
    ) -> None:  # fmt: skip
        self.backend, self.x, self.w, self.z = backend, x, w, z
        num, outer, pixels, block = grid_of(x.value.layout)
        channels = outer * block
        self._norms = Norms(backend, x.value.layout, x.shape[1], (before, after))
        self.moments = (self._norms[0], self._norms[1])
        self._dw = np.empty(channels * TAPS, np.float32)
        self._drafts = np.empty(num * channels * TAPS, np.float32)
        height, columns = x.shape[2:]
        alone = apart(x.value.layout, backend.threads)
        self._geometry = (height, columns, window.stride[0], alone)
        self._source, self._inner = (OneDNNTensor(backend, blob.shape) for blob in (x, z))
        self._source.lay_out(x.value.layout)
        self._inner.lay_out(z.value.layout)
        backend.expect([kernels.forward], [kernels.backward])

    def forward(self, running: Sequence[RunningMoments | None]) -> None:
        value = self.x.value
        value.sync()
        self._source.bind(value.buffer)
        self._source.fresh = NATIVE
        self._norms.take()
        use_threads(self.backend.threads)
        kernels.forward(
            seen(self._source), self._weights(), written(self._inner), written(self.z.value),
            *(*self._norms.arrays, *self._geometry),
        )  # fmt: skip
        self._norms.give(running)

    def _weights(self) -> Array:
        self.w.value.sync()
        return _flat(self.w.value, self._dw.size)

    def show(self) -> None:
        value = self.x.value
        value.bind(None)  # where x is, and stays for backward
        self._norms[0].write_result(seen(self._source), written(value))

    def hide(self) -> None:
        self.x.value.bind(self._source.buffer)
        self.x.value.fresh = NATIVE

    def backward(self, learns: Sequence[Sequence[bool]], weights: bool, keep: bool) -> None:
        gradient = self.z.gradient
        dy = read(gradient)
        self._norms.take_scales()
        use_threads(self.backend.threads)
        kernels.backward(
            seen(self._source), self._weights(), seen(self._inner), dy, written(self.x.gradient),
            self._dw, self._drafts, *(*self._norms.arrays, *self._geometry), keep,
        )  # fmt: skip
        if keep:
            gradient.fresh = NATIVE
        self._norms.learn(learns)
        if weights:
            added_to(self.w.gradient)[...] += self._dw


def _lies_in_blocks(layout: Any, block: int) -> bool:
    """Do weights lie as [channels / block] [taps] [block]?"""
    if not isinstance(layout, Descriptor) or layout.is_plain:
        return False
    facts = layout.library.describe(layout.handle)
    strides = facts["strides"]
    return (
        facts["blocks"] == (block,) and facts["block_axes"] == (0,)
        and (strides[0], *strides[-2:]) == (TAPS * block, 3 * block, block)
        and layout.elements == prod(facts["padded"])
    )  # fmt: skip


def _flat(tensor: Tensor, size: int) -> Array:
    assert tensor.buffer is not None
    return tensor.buffer[:size]
