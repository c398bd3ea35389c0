"""Batch normalisation whose result is added to another blob, with the ReLU after the sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..blob import Blob
from ..compiled import available, use_threads
from ..kernels import batch_norm as kernels
from ..plans import Norm, NormSumPlan, RunningMoments
from ..tensor import NATIVE, Array, Tensor
from .add import Sum
from .grids import read, seen, written
from .layouts import OneDNNTensor, Program
from .norms import NOTHING, Norms, blocks_at_a_time, has_whole_blocks

if TYPE_CHECKING:
    from . import OneDNNBackend


class NormSum(NormSumPlan):
    """All blobs lie alike. In place, the blob keeps the input until somebody wants to see more."""

    @staticmethod
    def supports(x: Blob, addend: Blob, total: Blob) -> bool:
        layout = x.value.layout
        alike = addend.value.layout == layout and total.value.layout == layout
        return available() and alike and 0 not in x.shape and has_whole_blocks(layout)

    def __init__(
        self, backend: OneDNNBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None,
        eps: float, global_stats: bool, addend: Blob, total: Blob, relu: float | None,
        readers: Sequence[Blob],
    ) -> None:  # fmt: skip
        self.backend, self.x, self.y = backend, x, y
        self.addend, self.total = addend, total
        norm = Norm(scale, shift, eps, global_stats, relu)
        self._norms = Norms(backend, x.value.layout, x.shape[1], [norm])
        self.mean, self.variance = self._norms[0].mean, self._norms[0].variance
        self._blocks = blocks_at_a_time(x.value.layout, backend.threads)
        self._source: Tensor = x.value
        if y.value is x.value:
            self._source = OneDNNTensor(backend, x.shape)
            self._source.lay_out(x.value.layout)
        self._parts = [blob.gradient for blob in readers]
        self._extra = Sum(backend, self._parts, total.gradient) if len(self._parts) > 2 else None
        self._copies: dict[int, Program] = {}
        backend.expect([kernels.forward], [kernels.sum_backward])

    def forward(self, running: RunningMoments | None = None) -> None:
        x, addend = self._take_input(), read(self.addend.value)
        self._norms.take()
        use_threads(self.backend.threads)
        kernels.forward(
            x, addend, written(self.total.value), *self._norms.arrays, self._blocks
        )  # fmt: skip
        self._norms.give([running])

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
        one, *others = (read(part) for part in parts)
        dx = written(self.x.gradient) if data else NOTHING
        self._norms.take_scales()
        use_threads(self.backend.threads)
        kernels.sum_backward(
            seen(self._source), read(self.total.value), one, others[0] if others else NOTHING,
            written(self.total.gradient), dx, *self._norms.arrays, self._blocks,
        )  # fmt: skip
        self._norms.learn([(scale, shift)])
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
