"""Convolution and deconvolution: patches by a kernel, products by cuBLAS, many images at a time."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, ClassVar

from ..blob import Blob
from ..plans import WeightedPlan, Window
from ..tensor import Array, ChannelsLast, Tensor
from .blas import Matrix
from .channels import Channels
from .geometry import AXES, geometry, pointwise
from .launch import kind_of
from .layouts import Rows
from .tensor import accumulator, can_move, optional, own, source

if TYPE_CHECKING:
    from . import CudaBackend

PATCH_ELEMENTS = 2**26  # of patches at a time: 256 MiB


class Convolution(WeightedPlan):
    """Deconvolution is convolution with forward and data gradient exchanged.

    So both know an image, over which the window slides, and a map with one value per window:
    `_lower` brings images to maps, `_raise` maps to images. Windows of one pixel need no patches;
    one filter per channel has kernels of its own. Maps may lie in memory with gaps, where they are
    parts of a larger blob.
    """

    makes_patches: ClassVar[bool] = True

    @staticmethod
    def supports(x: Blob, y: Blob, window: Window) -> bool:
        return 1 <= len(window.kernel) <= AXES and 0 not in x.shape and 0 not in y.shape

    def __init__(
        self, backend: CudaBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window,
        groups: int, relu: float | None, transposed: bool, last: bool = False,
    ) -> None:  # fmt: skip
        """`last`: with channels last, if the products are another class's."""
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
        self._last = last
        y.lay_out(ChannelsLast(y.shape) if last else backend.plain_layout(y.shape))
        self._bias_sums = Channels.of(backend, (self._samples, *y.shape[axis:]), last)
        if axis == 1 and not transposed and not self._depthwise:
            can_move(y)
        self._patch_rows = self._channels * self._cells
        per_image = (self._patch_rows + self._maps) * self._windows
        self._chunk = max(1, min(self._samples, PATCH_ELEMENTS // per_image))
        if self.makes_patches and not self._depthwise:
            for tensor in (y.value, y.gradient, x.gradient):
                backend.reserve(self._chunk * per_image, tensor.kind)

    def forward(self, activate: bool = True) -> None:
        kind, w = self.y.value.kind, self._weights(self.y.value.kind)
        if self.transposed:
            maps, y = self._maps_of(self.x.value, kind), Rows(self._new_images(self.y.value), 0)
            self._raise(maps, w, y.array)
        else:
            images, y = self._images_of(self.x.value, kind), self._new_maps(self.y.value)
            self._lower(images, w, y)
        relu = activate and self.relu is not None
        if self.b is not None or relu:
            self.kernels["bias_relu", kind](
                self.y.count, optional(self.b), *self._bias_sums.sizes, int(relu),
                self.relu or 0.0, y.pitch, y.array,
            )  # fmt: skip

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        x, dy, dx = self.x.value, self.y.gradient, self.x.gradient
        if bias and self.b is not None:
            self._bias_sums.add_sums(dy, self.b.gradient)
        if weights:
            images, maps = (dy, x) if self.transposed else (x, dy)
            given = self._images_of(images, dy.kind), self._maps_of(maps, dy.kind)
            self._correlate(*given, *accumulator(self.w.gradient, self._last))
        if data:
            w = self._weights(dx.kind)
            if self.transposed:
                self._lower(self._images_of(dy, dx.kind), w, self._new_maps(dx))
            else:
                self._raise(self._maps_of(dy, dx.kind), w, self._new_images(dx))

    # Blobs in the order that products take them.

    def _images_of(self, tensor: Tensor, kind: str) -> Array:
        return own(tensor).read_flat(kind, self._last)

    def _maps_of(self, tensor: Tensor, kind: str) -> Rows:
        return own(tensor).read(kind, self._last)

    def _new_images(self, tensor: Tensor) -> Array:
        return own(tensor).write_flat(self._last)

    def _new_maps(self, tensor: Tensor) -> Rows:
        return own(tensor).write_in(self._last)

    def _weights(self, kind: str) -> Array:
        """As products take them; the depthwise kernels take them as they are."""
        return source(self.w.value, None if self._depthwise else kind)

    # Pieces of the batch.

    def _chunks(self) -> Iterator[tuple[int, int]]:
        """First image and number of images."""
        for first in range(0, self._samples, self._chunk):
            yield first, min(self._chunk, self._samples - first)

    def _part(self, values: Array, each: int, first: int, count: int) -> Array:
        """These images, which begin `each` elements apart."""
        return values[first * each : (first + count) * each]

    def _pitch(self, maps: Rows) -> int:
        return maps.pitch or self._maps * self._windows

    def _patches(self, count: int, kind: str) -> Array:
        return self.backend.scratch(count * self._patch_rows * self._windows, kind)

    # The three products. Within a group: (maps, rows) weights, (rows, windows) patches.

    def _lower(self, images: Array, w: Array, maps: Rows) -> None:
        kind, pitch = kind_of(maps.array), self._pitch(maps)
        if self._depthwise:
            kernel = self.kernels["depthwise_lower", kind]
            kernel(maps.array.size, images, w, self._geometry, maps.array)
            return
        if self._direct:
            self._lower_patches(images, w, maps.array, pitch, self._samples)
            return
        for first, count in self._chunks():
            patches, each = self._patches(count, kind), self._channels * self._pixels
            self._gather(self._part(images, each, first, count), count, patches, by_row=False)
            self._lower_patches(patches, w, self._part(maps.array, pitch, first, count), pitch,
                                count)  # fmt: skip

    def _lower_patches(self, patches: Array, w: Array, maps: Array, pitch: int, count: int) -> None:
        """maps = w patches, one batch per group."""
        m, rows, windows = self._sizes
        for g in range(self.groups):
            self.blas.product(
                Matrix(w, rows, g * m * rows),
                Matrix(patches, windows, g * rows * windows, self._patch_rows * windows),
                Matrix(maps, windows, g * m * windows, pitch),
                m, windows, rows, count,
            )  # fmt: skip

    def _raise(self, maps: Rows, w: Array, images: Array) -> None:
        kind, pitch = kind_of(images), self._pitch(maps)
        if self._depthwise:
            kernel = self.kernels["depthwise_raise", kind]
            kernel(images.size, maps.array, w, self._geometry, images)
            return
        if self._direct:
            self._raise_patches(maps.array, pitch, w, images, self._samples)
            return
        for first, count in self._chunks():
            patches, each = self._patches(count, kind), self._channels * self._pixels
            part = self._part(images, each, first, count)
            given = self._part(maps.array, pitch, first, count)
            self._raise_patches(given, pitch, w, patches, count)
            self.kernels["col2im", kind](part.size, patches, self._geometry, part)

    def _raise_patches(self, maps: Array, pitch: int, w: Array, patches: Array, count: int) -> None:
        """patches = w^T maps, one batch per group."""
        m, rows, windows = self._sizes
        for g in range(self.groups):
            self.blas.product(
                Matrix(w, rows, g * m * rows, turned=True),
                Matrix(maps, windows, g * m * windows, pitch),
                Matrix(patches, windows, g * rows * windows, self._patch_rows * windows),
                rows, windows, m, count,
            )  # fmt: skip

    def _correlate(self, images: Array, maps: Rows, dw: Array, keep: float) -> None:
        """dw = keep dw + maps patches^T, summed over all images of a chunk in one product."""
        kind, pitch = kind_of(maps.array), self._pitch(maps)
        if self._depthwise:
            self.kernels["depthwise_correlate", kind].blocks(
                dw.size, images, maps.array, self._geometry, self._samples, keep, dw
            )
            return
        m, rows, windows = self._sizes
        for first, count in self._chunks():
            length, each = count * windows, self._channels * self._pixels
            both = self.backend.scratch((self._patch_rows + self._maps) * length, kind)
            patches, turned = both[: self._patch_rows * length], both[self._patch_rows * length :]
            self._gather(self._part(images, each, first, count), count, patches, by_row=True)
            part = self._part(maps.array, pitch, first, count)
            self.kernels["im2col", kind](
                self._maps * length, part, pitch, self._identity, length, windows, turned
            )
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
        pitch = self._channels * self._pixels
        kernel(threads, images, pitch, self._geometry, row, image, patches)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """Of one group: maps, rows of patches, windows."""
        return self._maps // self.groups, self._patch_rows // self.groups, self._windows
