"""Batch normalisation whose result is added to another blob, with the ReLU after the sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..blob import Blob
from ..cpu import library as native
from ..cpu.batch_norm import NormForward, NormSumBackward, SingleNorm, has_whole_blocks
from ..plans import Norm, NormSumPlan, RunningMoments
from ..tensor import NATIVE, Array, Tensor
from .add import Sum
from .grids import grid_of, read, seen, written
from .layouts import OneDNNTensor, Program

if TYPE_CHECKING:
    from . import OneDNNBackend


class NormSum(NormSumPlan):
    """All blobs lie alike. In place, the blob keeps the input until somebody wants to see more."""

    @staticmethod
    def supports(x: Blob, addend: Blob, total: Blob) -> bool:
        layout = x.value.layout
        alike = addend.value.layout == layout and total.value.layout == layout
        return native.available() and alike and has_whole_blocks(grid_of(layout))

    def __init__(
        self, backend: OneDNNBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None,
        eps: float, global_stats: bool, addend: Blob, total: Blob, relu: float | None,
        readers: Sequence[Blob],
    ) -> None:  # fmt: skip
        self.backend, self.x, self.y = backend, x, y
        self.addend, self.total = addend, total
        norm = Norm(scale, shift, eps, global_stats, relu)
        self._norms = SingleNorm(backend, norm, x.shape[1], grid_of(x.value.layout))
        self.mean, self.variance = self._norms[0].mean, self._norms[0].variance
        self._forward = NormForward(**self._norms.fields)
        self._backward = NormSumBackward(**self._norms.fields)
        self._source: Tensor = x.value
        if y.value is x.value:
            self._source = OneDNNTensor(backend, x.shape)
            self._source.lay_out(x.value.layout)
        self._parts = [blob.gradient for blob in readers]
        self._extra = Sum(backend, self._parts, total.gradient) if len(self._parts) > 2 else None
        self._copies: dict[int, Program] = {}

    def forward(self, running: RunningMoments | None = None) -> None:
        kernel = self._forward
        kernel.x, kernel.addend = self._take_input(), read(self.addend.value)
        kernel.y = written(self.total.value)
        self._norms.before_forward()
        kernel.run()
        self._norms.after_forward([running])

    def _take_input(self) -> Array:
        value = self.x.value
        value.sync()
        if self._source is not value:
            self._source.bind(value.buffer)
            self._source.fresh = NATIVE
        elif self.y.value.buffer is not None:
            self.y.value.release()  # somebody has looked at the last pass
        return seen(value)

    def show(self) -> None:
        value = self.y.value
        if self._source is not self.x.value:
            value.bind(None)  # where the input is, and stays for backward
        self._norms[0].write_normal(seen(self._source), written(value))

    def hide(self) -> None:
        if self._source is not self.x.value:
            self.x.value.bind(self._source.buffer)
            self.x.value.fresh = NATIVE

    def backward(self, data: bool, scale: bool, shift: bool, addend: bool, keep: bool) -> None:
        if self._extra is not None:
            self._extra()
        parts = self._parts if self._extra is None else [self.total.gradient]
        one, other = (*(read(part) for part in parts), None)[:2]
        kernel = self._backward
        kernel.x, kernel.y = seen(self._source), read(self.total.value)
        kernel.one, kernel.other = one, other
        kernel.g = written(self.total.gradient)
        kernel.dx = written(self.x.gradient) if data else None
        self._norms.before_backward()
        kernel.run()
        self._norms.after_backward([(scale, shift)])
        if addend:
            self._copy_gradient(self.addend.gradient)
        if keep and self.y.value is not self.x.value:
            self._copy_gradient(self.y.gradient)
            self._norms[0].multiply_by_scale(seen(self.y.gradient))

    def _copy_gradient(self, target: Tensor) -> None:
        """Give the sum's gradient to something that was added, unless they share memory."""
        source = self.total.gradient
        target.allocate()
        assert source.buffer is not None and target.buffer is not None
        if source.buffer.ctypes.data == target.buffer.ctypes.data:
            target.fresh = NATIVE
            return
        if id(target) not in self._copies:
            program = self._copies[id(target)] = Program(self.backend)
            program.reorder(source, target)
        self._copies[id(target)].run()
