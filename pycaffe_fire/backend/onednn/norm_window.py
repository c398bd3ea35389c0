"""A window over each channel between two batch normalisations, as one op."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..blob import Blob
from ..cpu import library as native
from ..cpu.batch_norm import Norms, has_whole_blocks, takes_blocks_apart
from ..cpu.depthwise import TAPS, WindowBackward, WindowForward
from ..plans import Norm, NormWindowPlan, RunningMoments, Window
from ..tensor import NATIVE, Array, Tensor
from .grids import added_to, grid_of, read, seen, written
from .layouts import Descriptor, OneDNNTensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from . import OneDNNBackend


class NormWindow(NormWindowPlan):
    """The blob of x keeps its input until somebody wants to see more; z's is kept elsewhere."""

    @staticmethod
    def supports(x: Blob, w: Blob, window: Window, z: Blob) -> bool:
        fits = window.kernel == (3, 3) and window.pad == window.dilation == (1, 1)
        if not native.available() or not fits or window.stride not in ((1, 1), (2, 2)):
            return False
        before, after = grid_of(x.value.layout), grid_of(z.value.layout)
        if before[1::2] != after[1::2] or not has_whole_blocks(before):
            return False
        return _is_blocked(w.value.layout, before[3])

    def __init__(
        self, backend: OneDNNBackend, x: Blob, before: Norm, w: Blob, window: Window, z: Blob,
        after: Norm,
    ) -> None:  # fmt: skip
        self.backend, self.x, self.w, self.z = backend, x, w, z
        grid = grid_of(x.value.layout)
        samples, blocks, _, block = grid
        self._norms = Norms(backend, (before, after), x.shape[1], grid, samples)
        self.moments = (self._norms[0], self._norms[1])
        self._dw = np.empty(blocks * TAPS * block, np.float32)
        fields = {
            **self._norms.fields, "together": 0 if takes_blocks_apart(grid, backend.threads) else 1,
            "samples": samples, "height": x.shape[2], "width": x.shape[3],
            "stride": window.stride[0],
        }  # fmt: skip
        self._forward = WindowForward(**fields)
        partial = np.empty(samples * self._dw.size, np.float32)
        self._backward = WindowBackward(**fields, dw=self._dw, partial_dw=partial)
        self._source, self._inner = (OneDNNTensor(backend, blob.shape) for blob in (x, z))
        self._source.lay_out(x.value.layout)
        self._inner.lay_out(z.value.layout)

    def forward(self, running: Sequence[RunningMoments | None]) -> None:
        value = self.x.value
        value.sync()
        self._source.bind(value.buffer)
        self._source.fresh = NATIVE
        kernel = self._forward
        kernel.x, kernel.w = seen(self._source), self._weights()
        kernel.z, kernel.y = written(self._inner), written(self.z.value)
        self._norms.before_forward()
        kernel.run()
        self._norms.after_forward(running)

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
        gradient, kernel = self.z.gradient, self._backward
        kernel.x, kernel.w = seen(self._source), self._weights()
        kernel.z, kernel.dy = seen(self._inner), read(gradient)
        kernel.dx = written(self.x.gradient)
        if kernel.keep != keep:
            kernel.keep = keep
        self._norms.before_backward()
        kernel.run()
        if keep:
            gradient.fresh = NATIVE
        self._norms.after_backward(learns)
        if weights:
            added_to(self.w.gradient)[...] += self._dw


def _is_blocked(layout: Any, block: int) -> bool:
    """Return True if weights are stored as [channels / block] [taps] [block]."""
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
