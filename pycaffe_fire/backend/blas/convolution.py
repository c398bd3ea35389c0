"""Convolutions over two axes as products of matrices, by NumPy's BLAS."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import WeightedPlan, Window
from ..blob import Blob
from ..kernels import rows as kernels
from ..numpy.shifts import shifts
from ..tensor import Array, ChannelsLast
from .layouts import images, read, some, writing
from .products import single_threaded_products

if TYPE_CHECKING:
    from . import BlasBackend

CHUNK = 1 << 19  # numbers in the patches of the images that a thread works on together


class Convolution(WeightedPlan):
    """A subclass multiplies, for some images of a batch at a time: threads take shares of it.

    Weights keep Caffe's order (O, I/groups, height, width).
    """

    def __init__(
        self, backend: BlasBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window,
        groups: int, relu: float | None,
    ) -> None:  # fmt: skip
        self.backend, self.x, self.w, self.b, self.y = backend, x, w, b, y
        self.window, self.groups, self.relu = window, groups, relu
        self.sizes = (*x.shape[2:], *y.shape[2:])
        self._no_bias = np.zeros(y.shape[1], np.float32)
        y.lay_out(ChannelsLast(y.shape))

    def forward(self, activate: bool = True) -> None:
        slope = np.float32(self.relu if activate and self.relu is not None else 1)
        bias = self._no_bias if self.b is None else self.b.data.reshape(-1)
        with writing(self.y.value) as y:
            x, w = read(self.x.value), self.matrices(self.w.data)

            def run(first: int, stop: int) -> None:
                self.multiply(some(x, self.x, first, stop), w, some(y, self.y, first, stop),
                              bias, slope)  # fmt: skip

            self.backend.share(self.x.shape[0], run)

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        dy = read(self.y.gradient)
        if bias and self.b is not None:
            with single_threaded_products:
                self.b.diff[...] += (np.ones(len(dy), np.float32) @ dy).reshape(self.b.shape)
        if data:
            with writing(self.x.gradient) as dx:
                self._back(dy, dx, weights)
        elif weights:
            self._back(dy, None, weights)

    def _back(self, dy: Array, dx: Array | None, weights: bool) -> None:
        x = read(self.x.value) if weights else None
        w = None if dx is None else self.matrices(self.w.data)
        found: dict[int, Array] = {}

        def run(first: int, stop: int) -> None:
            mine, theirs = (
                None if rows is None else some(rows, self.x, first, stop) for rows in (x, dx)
            )
            part = self.back(some(dy, self.y, first, stop), w, theirs, mine)
            if part is not None:
                found[first] = part

        self.backend.share(self.x.shape[0], run)
        for _, part in sorted(found.items()):
            self.w.diff[...] += part.reshape(self.w.shape)

    @abstractmethod
    def matrices(self, weights: Array) -> Array:
        """The weights as `multiply` and `back` take them."""

    @abstractmethod
    def multiply(self, x: Array, w: Array, y: Array, bias: Array, slope: np.float32) -> None:
        """y = x * w + bias, then a ReLU with this slope."""

    @abstractmethod
    def back(self, dy: Array, w: Any, dx: Array | None, x: Array | None) -> Array | None:
        """Write the gradient of x, unless dx is None; return that of the weights in Caffe's order,
        unless x is None."""


class Pointwise(Convolution):
    """Windows of one pixel: images are one matrix."""

    def matrices(self, weights: Array) -> Array:
        return weights.reshape(self.w.shape[:2])

    def multiply(self, x: Array, w: Array, y: Array, bias: Array, slope: np.float32) -> None:
        np.matmul(x, w.T, out=y)
        kernels.finish(y, bias, slope)

    def back(self, dy: Array, w: Any, dx: Array | None, x: Array | None) -> Array | None:
        if dx is not None:
            np.matmul(dy, w, out=dx)
        return None if x is None else dy.T @ x


class Patches(Convolution):
    """im2col: the pixels that a window sees become a row, some images at a time."""

    def matrices(self, weights: Array) -> Array:
        """(groups, O/groups, cells * I/groups)"""
        outputs, inputs, *kernel = self.w.shape
        turned = weights.reshape(outputs, inputs, -1).swapaxes(1, 2)
        return turned.reshape(self.groups, outputs // self.groups, inputs * prod(kernel))

    def multiply(self, x: Array, w: Array, y: Array, bias: Array, slope: np.float32) -> None:
        for group, rows, patches in self._gathered(x, len(y)):
            np.matmul(patches, w[group].T, out=y[rows, self._outputs(group)])
        kernels.finish(y, bias, slope)

    def back(self, dy: Array, w: Any, dx: Array | None, x: Array | None) -> Array | None:
        if dx is not None:
            for group, first, rows, patches in self._chunks(len(dy)):
                np.matmul(dy[rows, self._outputs(group)], w[group], out=patches)
                kernels.scatter(patches, dx, first, self.sizes, self._window, self._inputs(group))
        if x is None:
            return None
        outputs, inputs, *kernel = self.w.shape
        cells = prod(kernel)
        total = np.zeros((self.groups, outputs // self.groups, cells * inputs), np.float32)
        for group, rows, patches in self._gathered(x, len(dy)):
            total[group] += dy[rows, self._outputs(group)].T @ patches
        return total.reshape(outputs, cells, inputs).swapaxes(1, 2)

    @property
    def _window(self) -> tuple[tuple[int, ...], ...]:
        win = self.window
        return win.kernel, win.stride, win.pad, win.dilation

    def _outputs(self, group: int) -> slice:
        size = self.y.shape[1] // self.groups
        return slice(group * size, (group + 1) * size)

    def _inputs(self, group: int) -> tuple[int, int]:
        """The first channel of a group, and how many it has."""
        size = self.w.shape[1]
        return group * size, size

    def _chunks(self, windows: int) -> Iterator[tuple[int, int, slice, Array]]:
        """Group, first image, rows of y, and memory for their patches."""
        pixels, width = prod(self.y.shape[2:]), prod(self.w.shape[1:])
        step = max(1, CHUNK // (pixels * width)) * pixels
        for group in range(self.groups):
            for start in range(0, windows, step):
                rows = slice(start, min(start + step, windows))
                patches = self.backend.scratch((rows.stop - start) * width)
                yield group, start // pixels, rows, patches.reshape(-1, width)

    def _gathered(self, x: Array, windows: int) -> Iterator[tuple[int, slice, Array]]:
        for group, first, rows, patches in self._chunks(windows):
            kernels.gather(x, patches, first, self.sizes, self._window, self._inputs(group))
            yield group, rows, patches


class Depthwise(Convolution):
    """One channel per group: no products of matrices, but sums over the cells of the window."""

    def matrices(self, weights: Array) -> Array:
        """(cells, channels)"""
        return weights.reshape(len(weights), -1).T

    def multiply(self, x: Array, w: Array, y: Array, bias: Array, slope: np.float32) -> None:
        image, out = images(x, self.x), images(y, self.y)
        out[...] = 0
        for cell, (outputs, inputs) in zip(w, self._shifts(), strict=True):
            out[outputs] += image[inputs] * cell
        kernels.finish(y, bias, slope)

    def back(self, dy: Array, w: Any, dx: Array | None, x: Array | None) -> Array | None:
        slopes = images(dy, self.y)
        if dx is not None:
            image = images(dx, self.x)
            image[...] = 0
            for cell, (outputs, inputs) in zip(w, self._shifts(), strict=True):
                image[inputs] += slopes[outputs] * cell
        if x is None:
            return None
        image = images(x, self.x)
        cells = [
            np.einsum("nhwc,nhwc->c", slopes[outputs], image[inputs])
            for outputs, inputs in self._shifts()
        ]
        return np.stack(cells, axis=1)

    def _shifts(self) -> Iterator[tuple[Any, Any]]:
        """The pixels that a cell of the window adds to, and those it sees."""
        for outputs, inputs in shifts(self.sizes[:2], self.sizes[2:], self.window):
            yield (*outputs, slice(None)), (*inputs, slice(None))
