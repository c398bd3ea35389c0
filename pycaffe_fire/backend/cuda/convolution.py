"""Convolution and deconvolution: patches by a kernel, products by cuBLAS, many images at a time."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, ClassVar

from ..base import WeightedPlan, Window
from ..blob import Blob
from ..tensor import Array
from .blas import Matrix
from .channels import Channels
from .geometry import AXES, geometry, pointwise
from .launch import kind_of
from .tensor import accumulator, optional, source, target

if TYPE_CHECKING:
    from . import CudaBackend

PATCH_ELEMENTS = 2**26  # of patches at a time: 256 MiB


class Convolution(WeightedPlan):
    """Deconvolution is convolution with forward and data gradient exchanged.

    So both know an image, over which the window slides, and a map with one value per window:
    `_lower` brings images to maps, `_raise` maps to images. Windows of one pixel need no patches;
    one filter per channel has kernels of its own.
    """

    makes_patches: ClassVar[bool] = True

    @staticmethod
    def supports(x: Blob, y: Blob, window: Window) -> bool:
        return 1 <= len(window.kernel) <= AXES and 0 not in x.shape and 0 not in y.shape

    def __init__(
        self, backend: CudaBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window,
        groups: int, relu: float | None, transposed: bool,
    ) -> None:  # fmt: skip
        self.backend, self.kernels, self.blas = backend, backend.kernels, backend.blas
        self.x, self.w, self.b, self.y = x, w, b, y
        self.groups, self.relu, self.transposed = groups, relu, transposed
        axes = len(window.kernel)
        axis = len(x.shape) - axes - 1
        self._samples = prod(x.shape[:axis])
        image, small = (y, x) if transposed else (x, y)
        self._channels, self._maps = image.shape[axis], small.shape[axis]
        sizes, spatial = image.shape[axis + 1 :], small.shape[axis + 1 :]
        self._pixels, self._windows = prod(sizes), prod(spatial)
        self._cells = prod(window.kernel)
        self._depthwise = groups == self._channels == self._maps
        self._direct = sizes == spatial and window == pointwise(axes)
        self._geometry = geometry(backend.xp, self._channels, sizes, spatial, window)
        self._identity = geometry(backend.xp, self._maps, spatial, spatial, pointwise(axes))
        channels, inner = y.shape[axis], prod(y.shape[axis + 1 :])
        self._bias_sums = Channels(backend, self._samples, channels, inner)
        self._patch_rows = self._channels * self._cells
        per_image = (self._patch_rows + self._maps) * self._windows
        self._chunk = max(1, min(self._samples, PATCH_ELEMENTS // per_image))
        if self.makes_patches and not self._depthwise:
            for tensor in (y.value, y.gradient, x.gradient):
                backend.reserve(self._chunk * per_image, tensor.kind)

    def forward(self, activate: bool = True) -> None:
        kind = self.y.value.kind
        x, w, y = source(self.x.value, kind), self._weights(kind), target(self.y.value)
        if self.transposed:
            self._raise(x, w, y)
        else:
            self._lower(x, w, y)
        relu = activate and self.relu is not None
        if self.b is not None or relu:
            channels = self._channels if self.transposed else self._maps
            inner = self._pixels if self.transposed else self._windows
            self.kernels["bias_relu", kind](
                y.size, optional(self.b), channels, inner, int(relu), self.relu or 0.0, y
            )

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        if bias and self.b is not None:
            self._bias_sums.add_sums(self.y.gradient, self.b.gradient)
        if weights:
            kind, dy = self.y.gradient.kind, source(self.y.gradient)
            x = source(self.x.value, kind)
            dw, keep = accumulator(self.w.gradient)
            images, maps = (dy, x) if self.transposed else (x, dy)
            self._correlate(images, maps, dw, keep)
        if data:
            kind = self.x.gradient.kind
            dy, w, dx = source(self.y.gradient, kind), self._weights(kind), target(self.x.gradient)
            if self.transposed:
                self._lower(dy, w, dx)
            else:
                self._raise(dy, w, dx)

    def _weights(self, kind: str) -> Array:
        """As products take them; the depthwise kernels take them as they are."""
        return source(self.w.value, None if self._depthwise else kind)

    # Pieces of the batch.

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """First image and number of images."""
        for first in range(0, self._samples, self._chunk):
            yield first, min(self._chunk, self._samples - first)

    def _part(self, values: Array, first: int, count: int) -> Array:
        """These images of (samples, channels, pixels)."""
        each = values.size // self._samples
        return values[first * each : (first + count) * each]

    def _patches(self, count: int, kind: str) -> Array:
        return self.backend.scratch(count * self._patch_rows * self._windows, kind)

    # The three products. Within a group: (maps, rows) weights, (rows, windows) patches.

    def _lower(self, images: Array, w: Array, maps: Array) -> None:
        if self._depthwise:
            kernel = self.kernels["depthwise_lower", kind_of(maps)]
            kernel(maps.size, images, w, self._geometry, maps)
            return
        if self._direct:
            self._lower_patches(images, w, maps, self._samples)
            return
        for first, count in self._chunks():
            patches = self._patches(count, kind_of(images))
            self._gather(self._part(images, first, count), count, patches, by_row=False)
            self._lower_patches(patches, w, self._part(maps, first, count), count)

    def _lower_patches(self, patches: Array, w: Array, maps: Array, count: int) -> None:
        """maps = w patches, one batch per group."""
        m, rows, windows = self._sizes
        for g in range(self.groups):
            self.blas.product(
                Matrix(w, rows, g * m * rows),
                Matrix(patches, windows, g * rows * windows, self._patch_rows * windows),
                Matrix(maps, windows, g * m * windows, self._maps * windows),
                m, windows, rows, count,
            )  # fmt: skip

    def _raise(self, maps: Array, w: Array, images: Array) -> None:
        if self._depthwise:
            kernel = self.kernels["depthwise_raise", kind_of(images)]
            kernel(images.size, maps, w, self._geometry, images)
            return
        if self._direct:
            self._raise_patches(maps, w, images, self._samples)
            return
        for first, count in self._chunks():
            kind = kind_of(images)
            patches, part = self._patches(count, kind), self._part(images, first, count)
            self._raise_patches(self._part(maps, first, count), w, patches, count)
            self.kernels["col2im", kind](part.size, patches, self._geometry, part)

    def _raise_patches(self, maps: Array, w: Array, patches: Array, count: int) -> None:
        """patches = w^T maps, one batch per group."""
        m, rows, windows = self._sizes
        for g in range(self.groups):
            self.blas.product(
                Matrix(w, rows, g * m * rows, turned=True),
                Matrix(maps, windows, g * m * windows, self._maps * windows),
                Matrix(patches, windows, g * rows * windows, self._patch_rows * windows),
                rows, windows, m, count,
            )  # fmt: skip

    def _correlate(self, images: Array, maps: Array, dw: Array, keep: float) -> None:
        """dw = keep dw + maps patches^T, summed over all images of a chunk in one product."""
        kind = kind_of(maps)
        if self._depthwise:
            self.kernels["depthwise_correlate", kind].blocks(
                dw.size, images, maps, self._geometry, self._samples, keep, dw
            )
            return
        m, rows, windows = self._sizes
        for first, count in self._chunks():
            length = count * windows
            both = self.backend.scratch((self._patch_rows + self._maps) * length, kind)
            patches, turned = both[: self._patch_rows * length], both[self._patch_rows * length :]
            self._gather(self._part(images, first, count), count, patches, by_row=True)
            part = self._part(maps, first, count)
            self.kernels["im2col", kind](part.size, part, self._identity, length, windows, turned)
            self.blas.product(
                Matrix(turned, length, stride=m * length),
                Matrix(patches, length, stride=rows * length, turned=True),
                Matrix(dw, rows, stride=m * rows),
                m, rows, length, self.groups, keep,
            )  # fmt: skip
            keep = 1.0

    def _gather(self, images: Array, count: int, patches: Array, by_row: bool) -> None:
        """All patches, sorted by image, or by row with the images side by side."""
        row = count * self._windows if by_row else self._windows
        image = self._windows if by_row else self._patch_rows * self._windows
        threads = count * self._channels * self._windows
        kernel = self.kernels["im2col", kind_of(images)]
        kernel(threads, images, self._geometry, row, image, patches)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """Of one group: maps, rows of patches, windows."""
        return self._maps // self.groups, self._patch_rows // self.groups, self._windows
