"""PReLU, and a factor and an offset per channel, by kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..blob import Blob
from ..plans import ChannelPlan
from ..tensor import Array
from .channels import Channels
from .layouts import Order
from .tensor import CudaTensor, accumulator, cannot_move, follow, optional, own, source, target

if TYPE_CHECKING:
    from . import CudaBackend


class Channelwise(ChannelPlan):
    """In place, a copy of the input is kept; it gets its memory when the plan first runs."""

    def __init__(self, backend: CudaBackend, x: Blob, y: Blob, keep: bool) -> None:
        self.backend, self.kernels, self.x, self.y = backend, backend.kernels, x, y
        follow(x, y)
        if x.value is y.value:
            cannot_move(y.value, y.gradient)
        self._last, self._channels = own(y.value).last, x.shape[1]
        self._outer = Order.of(x.shape, self._last).rows
        self._inner = x.count // (self._outer * self._channels)
        self._kept: CudaTensor | None = None
        if keep and x.value is y.value:
            self._kept = backend.tensor((x.count,))
            self._kept.store_as(y.value.kind)
            self._room = backend.keep(self._kept.words)

    def _copy(self) -> Any:
        """Where forward puts a copy of its input, if anywhere."""
        if self._kept is None:
            return None
        if self._kept.buffer is None:
            self._kept.bind(self._room())
        return target(self._kept)

    def _input(self, kind: str) -> Array:
        if self._kept is not None:
            return source(self._kept, kind)
        return own(self.x.value).read_flat(kind, self._last)

    def _add_dots(self, blob: Blob, negative: bool) -> None:
        """Add to a parameter's gradient the channels' sums of x * dy, perhaps where x <= 0."""
        kind = self.x.gradient.kind
        total, keep = accumulator(blob.gradient)
        inner = self._inner * self._channels // total.size  # one number may be for all channels
        channels = Channels(self.backend, self._outer, total.size, inner)
        dy = own(self.y.gradient).read_flat(kind, self._last)
        self.kernels["channel_dots", kind].blocks(
            channels.blocks, self._input(kind), dy, *channels.cut,
            int(negative), keep, *channels.room, total,
        )  # fmt: skip


class PReLU(Channelwise):
    """y = x for x > 0, slope * x otherwise; one slope per channel, or one for all."""

    def __init__(self, backend: CudaBackend, x: Blob, y: Blob, slope: Blob) -> None:
        super().__init__(backend, x, y, keep=True)
        self.slope = slope

    def forward(self) -> None:
        kind = self.y.value.kind
        x, kept = own(self.x.value).read_flat(kind, self._last), self._copy()
        slopes, y = source(self.slope.value), own(self.y.value).write_flat(self._last)
        self.kernels["prelu", kind](x.size, x, slopes, slopes.size, self._inner, kept, y)

    def backward(self, data: bool, weights: bool, bias: bool = False) -> None:
        if weights:
            self._add_dots(self.slope, negative=True)
        if data:
            kind = self.x.gradient.kind
            dy = own(self.y.gradient).read_flat(kind, self._last)
            dx = own(self.x.gradient).write_flat(self._last)
            slopes = source(self.slope.value)
            self.kernels["prelu_backward", kind](
                dx.size, self._input(kind), dy, slopes, slopes.size, self._inner, dx
            )


class ScaleShift(Channelwise):
    """y = x * scale + shift, one of each per channel; either may be missing."""

    def __init__(
        self, backend: CudaBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None
    ) -> None:
        super().__init__(backend, x, y, keep=scale is not None)
        self.scale, self.shift = scale, shift

    def forward(self) -> None:
        kind = self.y.value.kind
        x, kept = own(self.x.value).read_flat(kind, self._last), self._copy()
        self.kernels["scale_shift", kind](
            x.size, x, optional(self.scale), optional(self.shift), self._channels, self._inner,
            kept, own(self.y.value).write_flat(self._last),
        )  # fmt: skip

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        kind = self.x.gradient.kind
        if weights and self.scale is not None:
            self._add_dots(self.scale, negative=False)
        if bias and self.shift is not None:
            channels = Channels.of(self.backend, self.y.shape, own(self.y.gradient).last)
            channels.add_sums(self.y.gradient, self.shift.gradient)
        if data:
            dy = own(self.y.gradient).read_flat(kind, self._last)
            self.kernels["scale_shift", kind](
                dy.size, dy, optional(self.scale), None, self._channels, self._inner, None,
                own(self.x.gradient).write_flat(self._last),
            )  # fmt: skip
