"""Convolution and deconvolution: patches gathered sample by sample, then one GEMM per group."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from ..blob import Blob
from ..plans import WeightedPlan, Window
from ..tensor import Array
from .activation import rectify
from .shifts import shifts

if TYPE_CHECKING:
    from . import NumPyBackend


class Convolution(WeightedPlan):
    """Deconvolution is convolution with forward and data gradient exchanged.

    So both know an `image`, over which the window slides, and a `map` with one value per window:
    `_lower` brings image to map, `_raise` map to image. Weights see them as (map, image) channels.
    """

    def __init__(
        self, backend: NumPyBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window,
        groups: int, relu: float | None, transposed: bool, lay_out: bool = True,
    ) -> None:  # fmt: skip
        self.backend, self.xp = backend, backend.xp
        self.x, self.w, self.b, self.y = x, w, b, y
        self.groups, self.relu, self.transposed = groups, relu, transposed
        if lay_out:
            y.lay_out(backend.plain_layout(y.shape))
        axes = len(window.kernel)
        self._channel_axis = len(x.shape) - axes - 1
        self._samples = prod(x.shape[: self._channel_axis])
        image, small = (y, x) if transposed else (x, y)
        self._image = image.shape[self._channel_axis :]
        self._spatial = small.shape[self._channel_axis + 1 :]
        self._maps = small.shape[self._channel_axis]
        self._shifts = shifts(self._image[1:], self._spatial, window)
        self._direct = self._image[1:] == self._spatial and all(
            k == s == 1 and p == 0
            for k, s, p in zip(window.kernel, window.stride, window.pad, strict=True)
        )

    def forward(self, activate: bool = True) -> None:
        y, w = self.y.data, self._matrices(self.w.data)
        if self.transposed:
            self._raise(self._map_rows(self.x.data), w, self._images(y))
        else:
            self._lower(self._images(self.x.data), w, self._map_rows(y))
        if self.b is not None:
            y += self.b.data.reshape(-1, *(1 for _ in self._spatial))
        if activate and self.relu is not None:
            rectify(self.xp, y, self.relu, out=y)

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        if bias and self.b is not None:
            db, dy = self.b.diff, self._per_channel(self.y.diff)
            db += dy.sum(axis=(0, 2)).reshape(db.shape)
        if weights:
            dw = self._matrices(self.w.diff)
            if self.transposed:
                self._correlate(self._images(self.y.diff), self._map_rows(self.x.data), dw)
            else:
                self._correlate(self._images(self.x.data), self._map_rows(self.y.diff), dw)
        if data:
            w = self._matrices(self.w.data)
            if self.transposed:
                self._lower(self._images(self.y.diff), w, self._map_rows(self.x.diff))
            else:
                self._raise(self._map_rows(self.y.diff), w, self._images(self.x.diff))

    # Views.

    def _per_channel(self, values: Array) -> Array:
        pixels = prod(values.shape[self._channel_axis + 1 :])
        return values.reshape(self._samples, values.shape[self._channel_axis], pixels)

    def _images(self, values: Array) -> Array:
        return values.reshape(self._samples, *self._image)

    def _map_rows(self, values: Array) -> Array:
        rows = self._maps // self.groups
        return values.reshape(self._samples, self.groups, rows, prod(self._spatial))

    def _matrices(self, weights: Array) -> Array:
        return weights.reshape(self.groups, self._maps // self.groups, self._patch_rows)

    @property
    def _patch_rows(self) -> int:
        return self._image[0] // self.groups * len(self._shifts)

    # The three GEMMs.

    def _patches(self) -> Array:
        """Scratch for the patches of one sample."""
        shape = (self._image[0], len(self._shifts), *self._spatial)
        return self.backend.scratch(prod(shape)).reshape(shape)

    def _blank_patches(self) -> Array | None:
        """Patches whose cells outside the image, which no gather writes, are zero."""
        if self._direct:
            return None
        patches = self._patches()
        patches[...] = 0
        return patches

    def _gather(self, image: Array, patches: Array) -> Array:
        """im2col: the patches of one image as matrices, one per group."""
        if not self._direct:
            for cell, (outputs, inputs) in enumerate(self._shifts):
                patches[:, cell][outputs] = image[inputs]
            image = patches
        return image.reshape(self.groups, self._patch_rows, prod(self._spatial))

    def _lower(self, images: Array, w: Array, maps: Array) -> None:
        patches = self._blank_patches()
        for image, out in zip(images, maps, strict=True):
            self.xp.matmul(w, self._gather(image, patches), out=out)

    def _raise(self, maps: Array, w: Array, images: Array) -> None:
        """col2im of w^T maps: every image pixel sums the patch cells that saw it."""
        turned = w.swapaxes(1, 2)
        if self._direct:
            matrices = images.reshape(-1, self.groups, self._patch_rows, maps.shape[-1])
            self.xp.matmul(turned, maps, out=matrices)
            return
        patches = self._patches()
        matrices = patches.reshape(self.groups, self._patch_rows, prod(self._spatial))
        for image, rows in zip(images, maps, strict=True):
            self.xp.matmul(turned, rows, out=matrices)
            image[...] = 0
            for cell, (outputs, inputs) in enumerate(self._shifts):
                image[inputs] += patches[:, cell][outputs]

    def _correlate(self, images: Array, maps: Array, dw: Array) -> None:
        """The weight gradient, added up sample by sample as Caffe does."""
        patches = self._blank_patches()
        for image, rows in zip(images, maps, strict=True):
            dw += self.xp.matmul(rows, self._gather(image, patches).swapaxes(1, 2))
