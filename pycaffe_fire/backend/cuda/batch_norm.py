"""Batch normalisation by kernels, with an optional scale, shift and ReLU after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base import NormPlan
from ..blob import Blob
from ..tensor import FLOAT32, Array
from .tensor import accumulator, optional, source, target

if TYPE_CHECKING:
    from . import CudaBackend


class BatchNorm(NormPlan):
    """Keeps the normalised input, so that in place is right."""

    def __init__(
        self, backend: CudaBackend, x: Blob, y: Blob, scale: Blob | None, shift: Blob | None,
        eps: float, global_stats: bool, relu: bool,
    ) -> None:  # fmt: skip
        self.backend, self.kernels = backend, backend.kernels
        self.x, self.y, self.scale, self.shift = x, y, scale, shift
        self.eps, self.global_stats, self.relu = eps, global_stats, relu
        self._channels = x.shape[1] if len(x.shape) > 1 else 1
        self._samples = x.shape[0]
        self._inner = x.count // (self._samples * self._channels)
        self.mean = backend.tensor((self._channels,))
        self.variance = backend.tensor((self._channels,))
        self._normed = backend.tensor((x.count,))
        self._normed.store_as(y.value.kind)
        self._normed.bind(backend.keep(self, self._normed.words))
        self._sums = backend.keep(self, 2 * self._channels)
        if relu:
            backend.reserve(x.count, x.gradient.kind)

    def forward(self) -> None:
        kind, channels, inner = self.y.value.kind, self._channels, self._inner
        x = source(self.x.value, kind)
        if not self.global_stats:
            self.kernels["channel_moments", kind].blocks(
                channels, x, self._samples, inner, target(self.mean), target(self.variance)
            )
        self.kernels["normalize", kind](
            x.size, x, source(self.mean), source(self.variance), optional(self.scale),
            optional(self.shift), channels, inner, self.eps, int(self.relu),
            target(self._normed), target(self.y.value),
        )  # fmt: skip

    def restore(self) -> None:
        if self.x.value is self.y.value:
            normed = self.backend.converted(source(self._normed), FLOAT32)
            mean, variance = (t.array.reshape(-1, 1) for t in (self.mean, self.variance))
            x = normed.reshape(self._samples, self._channels, self._inner)
            x = x * self.backend.xp.sqrt(variance + self.eps) + mean
            self.x.value.array[...] = x.reshape(self.x.shape)

    def backward(self, data: bool, scale: bool, shift: bool) -> None:
        channels, inner = self._channels, self._inner
        kind = self.x.gradient.kind
        normed = source(self._normed, kind)
        dy = self._before_relu(source(self.y.gradient, kind), normed, kind)
        totals, products = self._sums[:channels], self._sums[channels:]
        self.kernels["channel_products", kind].blocks(
            channels, dy, normed, self._samples, inner, totals, products
        )
        if shift and self.shift is not None:
            self._add(totals, self.shift)
        if scale and self.scale is not None:
            self._add(products, self.scale)
        if data:
            count = 0 if self.global_stats else self._samples * inner
            dx = target(self.x.gradient)
            self.kernels["normalize_backward", kind](
                dx.size, dy, normed, source(self.variance), optional(self.scale), totals,
                products, channels, inner, count, self.eps, dx,
            )  # fmt: skip

    def _before_relu(self, dy: Array, normed: Array, kind: str) -> Array:
        if not self.relu:
            return dy
        out = self.backend.scratch(dy.size, kind)
        self.kernels["through_relu", kind](
            dy.size, dy, normed, optional(self.scale), optional(self.shift), self._channels,
            self._inner, out,
        )  # fmt: skip
        return out

    def _add(self, sums: Array, blob: Blob) -> None:
        total, keep = accumulator(blob.gradient)
        kernel = self.kernels["scaled_add" if keep else "scaled_copy"]
        kernel(total.size, sums, 1.0, 0, 0.0, total)
