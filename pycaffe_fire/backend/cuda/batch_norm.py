"""Batch normalisation by kernels, with an optional scale, shift and ReLU after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base import NormPlan, RunningMoments
from ..blob import Blob
from ..tensor import Array
from .channels import Channels
from .tensor import accumulator, optional, source, target

if TYPE_CHECKING:
    from . import CudaBackend

NUMBERS = 3  # that a block leaves for each channel: count, mean and squares


class BatchNorm(NormPlan):
    """Two passes each way: statistics, and what is made of them. In place, the input is kept."""

    def __init__(
        self, backend: CudaBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None,
        eps: float, global_stats: bool, relu: bool,
    ) -> None:  # fmt: skip
        self.backend, self.kernels = backend, backend.kernels
        self.x, self.y, self.scale, self.shift = x, y, scale, shift
        self.eps, self.global_stats, self.relu = eps, global_stats, int(relu)
        channels = x.shape[1] if len(x.shape) > 1 else 1
        inner = x.count // (x.shape[0] * channels)
        self._sizes = (channels, inner)
        self._channels = Channels(backend, x.shape[0], channels, inner, NUMBERS)
        self._count = 0 if global_stats else x.shape[0] * inner
        self.mean, self.variance = backend.tensor((channels,)), backend.tensor((channels,))
        self._kept = backend.tensor((x.count,)) if x.value is y.value else None
        if self._kept is not None:
            self._kept.store_as(y.value.kind)
            self._room = backend.keep(self._kept.words)
        self._sums = backend.keep(2 * channels)

    def forward(self, running: RunningMoments | None = None) -> None:
        kind = self.y.value.kind
        x = source(self.x.value, kind)
        if not self.global_stats:
            self.kernels["channel_moments", kind].blocks(
                self._channels.blocks, x, *self._channels.cut, *self._channels.room,
                *_numbers(running), target(self.mean), target(self.variance), *_sums(running),
            )  # fmt: skip
        kept = self._copy()
        self.kernels["normalize", kind](
            x.size, x, *self._parameters(), *self._sizes, self.eps, self.relu, kept,
            target(self.y.value),
        )  # fmt: skip

    def _copy(self) -> Any:
        """Where forward puts a copy of its input, if anywhere."""
        if self._kept is None:
            return None
        if self._kept.buffer is None:
            self._kept.bind(self._room())
        return target(self._kept)

    def restore(self) -> None:
        if self._kept is not None:
            target(self.x.value)[...] = source(self._kept)

    def backward(self, data: bool, scale: bool, shift: bool) -> None:
        kind = self.x.gradient.kind
        x = source(self.x.value if self._kept is None else self._kept, kind)
        dy = source(self.y.gradient, kind)
        sums, products = self._sums()[: self._sizes[0]], self._sums()[self._sizes[0] :]
        self.kernels["normalize_sums", kind].blocks(
            self._channels.blocks, x, dy, *self._parameters(), *self._channels.cut, self.eps,
            self.relu, *self._channels.room, sums, products,
            *_gradient(self.shift, shift), *_gradient(self.scale, scale),
        )  # fmt: skip
        if data:
            dx = target(self.x.gradient)
            self.kernels["normalize_backward", kind](
                dx.size, x, dy, *self._parameters(), sums, products, *self._sizes, self._count,
                self.eps, self.relu, dx,
            )  # fmt: skip

    def _parameters(self) -> tuple[Array, Array, Any, Any]:
        both = optional(self.scale), optional(self.shift)
        return (source(self.mean), source(self.variance), *both)


def _numbers(running: RunningMoments | None) -> tuple[float, float]:
    return (0.0, 0.0) if running is None else (running.fade, running.unbiased)


def _sums(running: RunningMoments | None) -> tuple[Any, Any, Any]:
    return (None,) * 3 if running is None else (running.means, running.variances, running.weight)


def _gradient(blob: Blob | None, learns: bool) -> tuple[float, Any]:
    """How much to keep of a parameter's gradient, and its memory."""
    if blob is None or not learns:
        return 0.0, None
    total, keep = accumulator(blob.gradient)
    return keep, total
