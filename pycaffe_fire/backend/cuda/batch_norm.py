"""Batch normalisation by kernels, with an optional scale, shift and ReLU after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..blob import Blob
from ..plans import NormPlan, RunningMoments
from ..tensor import Array
from .channels import Channels
from .tensor import accumulator, can_move, follow, optional, own, source, target

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
        follow(x, y)
        if x.value is not y.value:
            can_move(y)
        self._last = own(y.value).last
        self._channels = Channels.of(backend, x.shape, self._last, NUMBERS)
        channels, inner = self._sizes = self._channels.sizes
        self._count = 0 if global_stats else x.count // channels
        self.mean, self.variance = backend.tensor((channels,)), backend.tensor((channels,))
        # In the order of y, whatever its own shape says.
        self._kept = backend.tensor((x.count,)) if x.value is y.value else None
        if self._kept is not None:
            self._kept.store_as(y.value.kind)
            self._room = backend.keep(self._kept.words)
        self._sums = backend.keep(2 * channels)

    def forward(self, running: RunningMoments | None = None) -> None:
        made = own(self.y.value)
        kind, x = made.kind, own(self.x.value).read(made.kind, self._last)
        if not self.global_stats:
            self.kernels["channel_moments", kind].blocks(
                self._channels.blocks, x.array, *self._channels.cut, x.pitch, *self._channels.room,
                *_numbers(running), target(self.mean), target(self.variance), *_sums(running),
            )  # fmt: skip
        kept, y = self._copy(), made.write()
        self.kernels["normalize", kind](
            self.y.count, x.array, *self._parameters(), *self._sizes, x.pitch, y.pitch, self.eps,
            self.relu, kept, y.array,
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
            own(self.x.value).write_flat(self._last)[...] = source(self._kept)

    def backward(self, data: bool, scale: bool, shift: bool) -> None:
        kind = self.x.gradient.kind
        x = self._input(kind)
        dy = own(self.y.gradient).read(kind, self._last)
        sums, products = self._sums()[: self._sizes[0]], self._sums()[self._sizes[0] :]
        self.kernels["normalize_sums", kind].blocks(
            self._channels.blocks, x, dy.array, *self._parameters(), *self._channels.cut,
            dy.pitch, self.eps, self.relu, *self._channels.room, sums, products,
            *_gradient(self.shift, shift), *_gradient(self.scale, scale),
        )  # fmt: skip
        if data:
            dx = own(self.x.gradient).write_in(self._last)
            self.kernels["normalize_backward", kind](
                self.x.count, x, dy.array, *self._parameters(), sums, products, *self._sizes,
                dy.pitch, dx.pitch, self._count, self.eps, self.relu, dx.array,
            )  # fmt: skip

    def _input(self, kind: str) -> Array:
        if self._kept is not None:
            return source(self._kept, kind)
        return own(self.x.value).read_flat(kind, self._last)

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
