"""Batch normalisation channels last, with an optional scale, shift and ReLU after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..blob import Blob
from ..cpu import library as native
from ..cpu.batch_norm import LANES, NormBackward, NormForward, SingleNorm
from ..numpy.batch_norm import BatchNorm
from ..plans import Norm, NormPlan, RunningMoments
from ..tensor import Array, ChannelsLast
from .elementwise import Rows
from .layouts import read, writing

if TYPE_CHECKING:
    from . import BlasBackend


class RowsBatchNorm(Rows, BatchNorm):
    """The plan in NumPy; rows are samples of one pixel."""


class VectorBatchNorm(NormPlan):
    """The plan with native kernels. In place, the input is copied for backward."""

    @staticmethod
    def suits(x: Blob) -> bool:
        return native.available() and x.shape[1] % LANES == 0

    def __init__(
        self, backend: BlasBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None,
        eps: float, global_stats: bool, relu: bool,
    ) -> None:  # fmt: skip
        self.x, self.y = x, y
        layout = ChannelsLast(x.shape)
        if y is not x:
            y.lay_out(layout)
        norm = Norm(scale, shift, eps, global_stats, 0.0 if relu else None)
        self._norms = SingleNorm(backend, norm, x.shape[1], layout.grid)
        self.mean, self.variance = self._norms[0].mean, self._norms[0].variance
        self._kept: Array | None = None
        if y.value is x.value:
            self._kept = backend.empty(layout.elements)
        self._forward = NormForward(**self._norms.fields, kept=self._kept)
        self._backward = NormBackward(**self._norms.fields)

    def forward(self, running: RunningMoments | None = None) -> None:
        kernel = self._forward
        self._norms.before_forward()
        kernel.x = read(self.x.value)
        with writing(self.y.value) as y:
            kernel.y = y
            kernel.run()
        self._norms.after_forward([running])

    def restore(self) -> None:
        if self._kept is not None:
            with writing(self.x.value) as x:
                x[...] = self._kept.reshape(x.shape)

    def backward(self, data: bool, scale: bool, shift: bool) -> None:
        kernel = self._backward
        self._norms.before_backward()
        kernel.x = read(self.x.value) if self._kept is None else self._kept
        kernel.dy, kernel.dx = read(self.y.gradient), None
        if data:
            with writing(self.x.gradient) as dx:
                kernel.dx = dx
                kernel.run()
        else:
            kernel.run()
        self._norms.after_backward([(scale, shift)])
