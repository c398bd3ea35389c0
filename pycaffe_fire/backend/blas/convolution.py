"""Convolutions over two axes as products of matrices, by NumPy's BLAS."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..blob import Blob
from ..cpu.rows import AddBias, Col2im, Im2col
from ..cpu.update import add_into
from ..numpy.shifts import shifts
from ..plans import WeightedPlan, Window
from ..tensor import Array, ChannelsLast
from .layouts import images, read, some, writing
from .products import PerThread

if TYPE_CHECKING:
    from . import BlasBackend

# A thread works on so many numbers at a time, which then stay in a cache: of patches, but no fewer
# windows than these, and of outputs that wait for their bias.
PATCHES, WINDOWS = 1 << 17, 768
OUTPUTS = 1 << 16


class Part(NamedTuple):
    """What a thread does of a backward pass: rows of some images, and the weights."""

    dy: Array
    w: Any  # as `matrices` made them, if there is a dx
    dx: Array | None  # to be written
    x: Array | None  # None: no gradient of the weights
    weights: Array  # to be written: `summands` numbers
    bias: Array  # to be written


class Convolution(WeightedPlan):
    """A subclass multiplies parts of a batch at a time: threads take shares of it.

    Weights keep Caffe's order (O, I/groups, height, width).
    """

    def __init__(
        self, backend: BlasBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window,
        groups: int, relu: float | None,
    ) -> None:  # fmt: skip
        self.backend, self.x, self.w, self.b, self.y = backend, x, w, b, y
        self.window, self.groups, self.relu = window, groups, relu
        self.sizes = (*x.shape[2:], *y.shape[2:])
        self.units = x.shape[0]  # forward can be cut into so many parts
        self.summands = w.count  # numbers that hold the gradient of the weights of a part
        self._no_bias = np.zeros(y.shape[1], np.float32)
        self._add_bias = PerThread(lambda: AddBias(channels=y.shape[1]))
        y.lay_out(ChannelsLast(y.shape))

    def forward(self, activate: bool = True) -> None:
        slope = np.float32(self.relu if activate and self.relu is not None else 1)
        bias = self._no_bias if self.b is None else self.b.data.reshape(-1)
        with writing(self.y.value) as y:
            x, w = read(self.x.value), self.matrices(self.w.data)

            def run(first: int, stop: int) -> None:
                self.multiply(x, w, y, first, stop, bias, slope)

            self.backend.share(self.units, run)

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        with ExitStack() as stack:
            dx = stack.enter_context(writing(self.x.gradient)) if data else None
            self._back(dx, weights, bias)

    def _back(self, dx: Array | None, weights: bool, bias: bool) -> None:
        dy, x = read(self.y.gradient), read(self.x.value) if weights else None
        w = None if dx is None else self.matrices(self.w.data)
        bounds = self.backend.parts(self.x.shape[0])
        sums = self.backend.scratch(len(bounds) * self.summands if weights else 0, "sums")
        sums, slopes = (
            sums.reshape(len(bounds), -1),
            np.empty((len(bounds), self.y.shape[1]), np.float32),
        )

        def run(first: int, stop: int) -> None:
            number = bounds.index((first, stop))
            mine, theirs = (
                None if rows is None else some(rows, self.x, first, stop) for rows in (x, dx)
            )
            above = some(dy, self.y, first, stop)
            self.back(Part(above, w, theirs, mine, sums[number], slopes[number]))

        self.backend.share(self.x.shape[0], run)
        if weights:
            self.add_weights(sums)
        if bias and self.b is not None:
            self.b.diff[...] += slopes.sum(axis=0).reshape(self.b.shape)

    def finish(self, y: Array, bias: Array, slope: np.float32) -> None:
        """y += bias for some rows, then a ReLU with this slope (1: none)."""
        kernel = self._add_bias.own
        kernel.threads, kernel.rows = self.backend.part_threads, len(y)
        kernel.y, kernel.bias, kernel.slope = y, bias, float(slope)
        kernel.run()

    @abstractmethod
    def matrices(self, weights: Array) -> Any:
        """The weights as `multiply` and `back` take them."""

    @abstractmethod
    def multiply(
        self, x: Array, w: Any, y: Array, first: int, stop: int, bias: Array, slope: np.float32
    ) -> None:
        """y = x * w + bias, then a ReLU with this slope, for units `first` up to `stop`."""

    @abstractmethod
    def back(self, part: Part) -> None:
        """Write all that the part is to have written."""

    def add_weights(self, sums: Array) -> None:
        """Add what the parts wrote to the gradient of the weights."""
        total = self.w.diff.reshape(-1)

        def run(first: int, stop: int) -> None:
            for each in sums:
                add_into(total[first:stop], each[first:stop])

        self.backend.share(total.size, run)


def _sum_rows(rows: Array, out: Array) -> None:
    np.matmul(np.ones(len(rows), np.float32), rows, out=out)


class Pointwise(Convolution):
    """Windows of one pixel: images are one matrix."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.units = self.x.shape[0] * prod(self.x.shape[2:])

    def matrices(self, weights: Array) -> Array:
        return weights.reshape(self.w.shape[:2])

    def multiply(
        self, x: Array, w: Any, y: Array, first: int, stop: int, bias: Array, slope: np.float32
    ) -> None:
        step = max(1, OUTPUTS // len(w))
        for start in range(first, stop, step):
            rows = slice(start, min(start + step, stop))
            np.matmul(x[rows], w.T, out=y[rows])
            self.finish(y[rows], bias, slope)

    def back(self, part: Part) -> None:
        _sum_rows(part.dy, part.bias)
        if part.dx is not None:
            np.matmul(part.dy, part.w, out=part.dx)
        if part.x is not None:
            np.matmul(part.dy.T, part.x, out=part.weights.reshape(self.w.shape[:2]))


class Patches(Convolution):
    """im2col: the pixels that a window sees become a row, some rows of windows at a time."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.units = self.x.shape[0] * self.y.shape[2]
        fields = {
            **Im2col.sizes(self.x.shape[2:], self.y.shape[2:], self.window),
            "channels": self.x.shape[1], "count": self.w.shape[1],
        }  # fmt: skip
        self._im2col = PerThread(lambda: Im2col(**fields))
        self._col2im = PerThread(lambda: Col2im(**fields))

    def matrices(self, weights: Array) -> Array:
        """(groups, O/groups, cells * I/groups)"""
        outputs, inputs, *kernel = self.w.shape
        turned = weights.reshape(outputs, inputs, -1).swapaxes(1, 2)
        return turned.reshape(self.groups, outputs // self.groups, inputs * prod(kernel))

    def multiply(
        self, x: Array, w: Any, y: Array, first: int, stop: int, bias: Array, slope: np.float32
    ) -> None:
        for rows, group, patches in self._gathered(x, first, stop):
            np.matmul(patches, w[group].T, out=y[rows, self._outputs(group)])
            if group == self.groups - 1:
                self.finish(y[rows], bias, slope)

    def back(self, part: Part) -> None:
        _sum_rows(part.dy, part.bias)
        rows_of_windows, (outputs, inputs, *kernel) = len(part.dy) // self.sizes[3], self.w.shape
        if part.dx is not None:
            for start, rows in self._chunks(0, rows_of_windows, whole=True):
                for group in range(self.groups):
                    patches = self._patches(rows)
                    np.matmul(part.dy[rows, self._outputs(group)], part.w[group], out=patches)
                    self._scatter(patches, part.dx, start // self.sizes[2], group)
        if part.x is not None:
            shape = self.groups, outputs // self.groups, prod(kernel) * inputs
            total = part.weights.reshape(shape)
            product = self.backend.scratch(total[0].size, "product").reshape(shape[1:])
            for rows, group, patches in self._gathered(part.x, 0, rows_of_windows):
                slopes = part.dy[rows, self._outputs(group)].T
                if rows.start == 0:
                    np.matmul(slopes, patches, out=total[group])
                else:
                    np.matmul(slopes, patches, out=product)
                    total[group] += product

    def add_weights(self, sums: Array) -> None:
        outputs, inputs, *kernel = self.w.shape
        total = self.w.diff.reshape(outputs, inputs, -1)
        each = sums.reshape(-1, outputs, prod(kernel), inputs).swapaxes(2, 3)

        def run(first: int, stop: int) -> None:
            for part in each:
                total[first:stop] += part[first:stop]

        self.backend.share(outputs, run)

    def _outputs(self, group: int) -> slice:
        size = self.y.shape[1] // self.groups
        return slice(group * size, (group + 1) * size)

    def _chunks(self, first: int, stop: int, whole: bool = False) -> Iterator[tuple[int, slice]]:
        """Rows of windows, or whole images, in chunks: where each begins, and its rows of y."""
        columns, width = self.y.shape[3], prod(self.w.shape[1:])
        step = max(1, max(PATCHES // width, WINDOWS) // columns)
        if whole:
            step = max(1, step // self.y.shape[2]) * self.y.shape[2]
        for start in range(first, stop, step):
            yield start, slice(start * columns, min(start + step, stop) * columns)

    def _patches(self, rows: slice) -> Array:
        """Memory for the patches of these rows of y."""
        count, width = rows.stop - rows.start, prod(self.w.shape[1:])
        return self.backend.scratch(count * width, "patches").reshape(count, width)

    def _gathered(self, x: Array, first: int, stop: int) -> Iterator[tuple[slice, int, Array]]:
        """Rows of y, a group, and their patches."""
        for start, rows in self._chunks(first, stop):
            for group in range(self.groups):
                patches = self._patches(rows)
                kernel = self._im2col.own
                kernel.threads, kernel.start = self.backend.part_threads, group * kernel.count
                kernel.x, kernel.patches = x, patches
                kernel.first, kernel.rows = start, len(patches) // self.sizes[3]
                kernel.run()
                yield rows, group, patches

    def _scatter(self, patches: Array, dx: Array, image: int, group: int) -> None:
        """Write a group's channels of some images, from this one on, as sums of patches."""
        kernel = self._col2im.own
        kernel.threads, kernel.start = self.backend.part_threads, group * kernel.count
        kernel.patches, kernel.dx = patches, dx
        kernel.first, kernel.images = image, len(patches) // prod(self.sizes[2:])
        kernel.run()


class Depthwise(Convolution):
    """One channel per group: no products of matrices, but sums over the cells of the window."""

    def matrices(self, weights: Array) -> Array:
        """(cells, channels)"""
        return weights.reshape(len(weights), -1).T

    def multiply(
        self, x: Array, w: Any, y: Array, first: int, stop: int, bias: Array, slope: np.float32
    ) -> None:
        for n in range(first, stop):  # one after the other: they stay in a cache
            rows = some(y, self.y, n, n + 1)
            image, out = images(some(x, self.x, n, n + 1), self.x), images(rows, self.y)
            out[...] = 0
            for cell, (outputs, inputs) in zip(w, self._shifts(), strict=True):
                out[outputs] += image[inputs] * cell
            self.finish(rows, bias, slope)

    def back(self, part: Part) -> None:
        _sum_rows(part.dy, part.bias)
        slopes = images(part.dy, self.y)
        if part.dx is not None:
            image = images(part.dx, self.x)
            image[...] = 0
            for cell, (outputs, inputs) in zip(part.w, self._shifts(), strict=True):
                image[inputs] += slopes[outputs] * cell
        if part.x is not None:
            image, cells = images(part.x, self.x), part.weights.reshape(len(slopes[0, 0, 0]), -1)
            for k, (outputs, inputs) in enumerate(self._shifts()):
                cells[:, k] = np.einsum("nhwc,nhwc->c", slopes[outputs], image[inputs])

    def _shifts(self) -> Iterator[tuple[Any, Any]]:
        """The pixels that a cell of the window adds to, and those it sees."""
        for outputs, inputs in shifts(self.sizes[:2], self.sizes[2:], self.window):
            yield (*outputs, slice(None)), (*inputs, slice(None))
