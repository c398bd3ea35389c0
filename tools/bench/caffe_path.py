"""How Caffe 1.0 computes on a CPU, as a contender for train.py, which starts this file.

What stands for Caffe: plain images; a convolution takes them one by one, im2col and then one sgemm
per group, again for the gradient of the weights, and col2im after the sgemm of the gradient of
the data, with one buffer of patches; OpenBLAS, with its own threads, is called as Caffe calls it
(sums by beta = 1, the bias as a product with ones); all other loops run on one thread. Pooling and
im2col are Caffe's loops, compiled by LLVM; LRN, dropout, softmax and the update are our kernels on
one thread and in one pass, which Caffe takes several for: what is different is to its advantage.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np
import threadpoolctl
from fire_net import FireNet, answer
from timing import BenchError

from pycaffe_fire.backend.base import Backend
from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.compiled import jit
from pycaffe_fire.backend.cpu.backend import CpuBackend
from pycaffe_fire.backend.cpu.rows import ReLUBackward
from pycaffe_fire.backend.numpy.activation import rectify
from pycaffe_fire.backend.plans import Plan, PoolingPlan, WeightedPlan, Window
from pycaffe_fire.backend.tensor import Array

ROW_MAJOR, AS_IS, TURNED = 101, 111, 112  # of cblas.h
# Names of sgemm in builds of OpenBLAS, and what its integers are.
SGEMM = {
    "scipy_cblas_sgemm64_": ctypes.c_int64, "cblas_sgemm64_": ctypes.c_int64,
    "scipy_cblas_sgemm": ctypes.c_int, "cblas_sgemm": ctypes.c_int,
}  # fmt: skip


class Sgemm:
    """NumPy's OpenBLAS, called directly: NumPy has no product that adds to its result."""

    def __init__(self) -> None:
        for found in threadpoolctl.ThreadpoolController().select(internal_api="openblas").info():
            library = ctypes.CDLL(found["filepath"])
            for name, integer in SGEMM.items():
                if hasattr(library, name):
                    self._call, self._integer = getattr(library, name), integer
                    return
        raise BenchError("NumPy here has no OpenBLAS whose sgemm could be called")

    def __call__(self, a: Array, b: Array, c: Array, turned: str = "", add: bool = False) -> None:
        """c = a b, or c += a b, of contiguous matrices; "a" or "b" is `turned` before."""
        rows, columns = c.shape
        inner = a.size // rows
        number, real = self._integer, ctypes.c_float
        self._call(
            ROW_MAJOR, TURNED if turned == "a" else AS_IS, TURNED if turned == "b" else AS_IS,
            number(rows), number(columns), number(inner), real(1), _address(a), number(a.shape[1]),
            _address(b), number(b.shape[1]), real(add), _address(c), number(columns),
        )  # fmt: skip


def _address(matrix: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(matrix.ctypes.data)


@jit
def im2col(image: Any, patches: Any, window: Any, rows: int, columns: int) -> None:
    """patches (channels, cells, rows * columns) of an image (channels, height, width)"""
    (kernel_h, kernel_w), stride, pad, dilation = window
    channels, height, width = image.shape
    for c in range(channels):
        for cell in range(kernel_h * kernel_w):
            top = cell // kernel_w * dilation[0] - pad[0]
            left = cell % kernel_w * dilation[1] - pad[1]
            for i in range(rows):
                y = top + i * stride[0]
                if 0 <= y < height:
                    for j in range(columns):
                        x = left + j * stride[1]
                        inside = 0 <= x < width
                        patches[c, cell, i * columns + j] = (
                            image[c, y, x] if inside else np.float32(0)
                        )
                else:
                    for j in range(columns):
                        patches[c, cell, i * columns + j] = np.float32(0)


@jit
def col2im(patches: Any, image: Any, window: Any, rows: int, columns: int) -> None:
    """Every pixel is the sum of the cells that saw it."""
    (kernel_h, kernel_w), stride, pad, dilation = window
    channels, height, width = image.shape
    for c in range(channels):
        for y in range(height):
            for x in range(width):
                image[c, y, x] = np.float32(0)
        for cell in range(kernel_h * kernel_w):
            top = cell // kernel_w * dilation[0] - pad[0]
            left = cell % kernel_w * dilation[1] - pad[1]
            for i in range(rows):
                y = top + i * stride[0]
                if 0 <= y < height:
                    for j in range(columns):
                        x = left + j * stride[1]
                        if 0 <= x < width:
                            image[c, y, x] += patches[c, cell, i * columns + j]


@jit
def max_forward(x: Any, y: Any, mask: Any, window: Any) -> None:
    """Planes (planes, height, width); the mask has the places of the maxima in their plane."""
    kernel, stride, pad = window
    _, height, width = x.shape
    planes, rows, columns = y.shape
    for plane in range(planes):
        for i in range(rows):
            for j in range(columns):
                top, left = i * stride[0] - pad[0], j * stride[1] - pad[1]
                best, place = np.float32(-np.inf), -1
                for h in range(max(top, 0), min(top + kernel[0], height)):
                    for w in range(max(left, 0), min(left + kernel[1], width)):
                        if x[plane, h, w] > best:
                            best, place = x[plane, h, w], h * width + w
                y[plane, i, j], mask[plane, i, j] = best, place


@jit
def max_backward(dy: Any, mask: Any, dx: Any) -> None:
    width = dx.shape[2]
    planes, rows, columns = dy.shape
    for plane in range(planes):
        for y in range(dx.shape[1]):
            for x in range(width):
                dx[plane, y, x] = np.float32(0)
        for i in range(rows):
            for j in range(columns):
                place = mask[plane, i, j]
                dx[plane, place // width, place % width] += dy[plane, i, j]


class Convolution(WeightedPlan):
    """An image after the other."""

    def __init__(
        self, backend: CaffeBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window,
        groups: int, relu: float | None,
    ) -> None:  # fmt: skip
        self.backend, self.x, self.w, self.b, self.y = backend, x, w, b, y
        self.groups, self.relu = groups, relu
        self._window = (window.kernel, window.stride, window.pad, window.dilation)
        self._is_point = prod(window.kernel) == prod(window.stride) == 1 and not any(window.pad)
        self._out = y.shape[2:]
        self._rows = prod(w.shape[1:])  # of a group's patches
        self._ones = np.ones((1, prod(y.shape[2:])), np.float32)

    def forward(self, activate: bool = True) -> None:
        x, w, y, sgemm = self.x.data, self._matrices(self.w.data), self.y.data, self.backend.sgemm
        for image, out in zip(x, y, strict=True):
            patches, maps = self._patches(image), self._maps(out)
            for group in range(self.groups):
                sgemm(w[group], patches[group], maps[group])
            if self.b is not None:
                sgemm(self.b.data.reshape(-1, 1), self._ones, out.reshape(len(out), -1), add=True)
        if activate and self.relu is not None:
            rectify(np, y, self.relu, out=y)

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        w, dw = self._matrices(self.w.data), self._matrices(self.w.diff)
        x, dy, dx = self.x.data, self.y.diff, self.x.diff if data else self.x.data
        sgemm = self.backend.sgemm
        for image, above, below in zip(x, dy, dx, strict=True):
            maps = self._maps(above)
            if bias and self.b is not None:
                sums = above.reshape(len(above), -1) @ self._ones[0]
                self.b.diff[...] += sums.reshape(self.b.shape)
            if weights:
                patches = self._patches(image)
                for group in range(self.groups):
                    sgemm(maps[group], patches[group], dw[group], turned="b", add=True)
            if data:
                patches = self._as_patches(below) if self._is_point else self._buffer()
                for group in range(self.groups):
                    sgemm(w[group], maps[group], patches[group], turned="a")
                if not self._is_point:
                    cells = patches.reshape(len(below), -1, self._ones.size)
                    col2im(cells, below, self._window, *self._out)

    def _matrices(self, weights: Array) -> Array:
        return weights.reshape(self.groups, -1, self._rows)

    def _maps(self, image: Array) -> Array:
        return image.reshape(self.groups, -1, self._ones.size)

    def _as_patches(self, image: Array) -> Array:
        return image.reshape(self.groups, self._rows, self._ones.size)

    def _buffer(self) -> Array:
        memory = self.backend.scratch(self.groups * self._rows * self._ones.size)
        return memory.reshape(self.groups, self._rows, self._ones.size)

    def _patches(self, image: Array) -> Array:
        if self._is_point:
            return self._as_patches(image)
        patches = self._buffer()
        im2col(image, patches.reshape(len(image), -1, self._ones.size), self._window, *self._out)
        return patches


class InnerProduct(WeightedPlan):
    """One sgemm in each direction."""

    def __init__(
        self, backend: CaffeBackend, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int,
        relu: float | None,
    ) -> None:  # fmt: skip
        self.backend, self.x, self.w, self.b, self.y, self.relu = backend, x, w, b, y, relu
        self._rows = prod(x.shape[:axis])
        self._ones = np.ones((self._rows, 1), np.float32)

    def forward(self, activate: bool = True) -> None:
        x, w, y = self._matrix(self.x.data), self.w.data, self._matrix(self.y.data)
        self.backend.sgemm(x, w, y, turned="b")
        if self.b is not None:
            self.backend.sgemm(self._ones, self.b.data.reshape(1, -1), y, add=True)
        if activate and self.relu is not None:
            rectify(np, y, self.relu, out=y)

    def backward(self, data: bool, weights: bool, bias: bool) -> None:
        dy = self._matrix(self.y.diff)
        if weights:
            x = self._matrix(self.x.data)
            self.backend.sgemm(dy, x, self.w.diff, turned="a", add=True)
        if bias and self.b is not None:
            self.b.diff[...] += (self._ones[:, 0] @ dy).reshape(self.b.shape)
        if data:
            self.backend.sgemm(dy, self.w.data, self._matrix(self.x.diff))

    def _matrix(self, values: Array) -> Array:
        return values.reshape(self._rows, -1)


class MaxPooling(PoolingPlan):
    """Keeps a mask of integers."""

    def __init__(self, x: Blob, y: Blob, window: Window) -> None:
        self.x, self.y = x, y
        self._window = window.kernel, window.stride, window.pad
        self._mask = np.empty((prod(y.shape[:2]), *y.shape[2:]), np.int32)

    def forward(self) -> None:
        max_forward(_planes(self.x.data), _planes(self.y.data), self._mask, self._window)

    def backward(self) -> None:
        max_backward(_planes(self.y.diff), self._mask, _planes(self.x.diff))


def _planes(values: Array) -> Array:
    return values.reshape(-1, *values.shape[2:])


class ReLU(Plan):
    def __init__(self, x: Blob, y: Blob, slope: float) -> None:
        self.x, self.y, self._slope = x, y, slope
        self._backward = ReLUBackward(threads=1, count=y.count, slope=slope)

    def forward(self) -> None:
        rectify(np, self.x.data, self._slope, out=self.y.data)

    def backward(self) -> None:
        kernel = self._backward
        kernel.y, kernel.dy, kernel.dx = self.y.data, self.y.diff, self.x.diff
        kernel.run()


class CaffeBackend(CpuBackend):
    """One thread but for OpenBLAS; what is not here is NumPy's, or a kernel on one thread."""

    name = "caffe"

    def __init__(self) -> None:
        super().__init__(1)
        self.sgemm = Sgemm()

    def describe(self) -> str:
        return "im2col, OpenBLAS and single-threaded loops, as Caffe 1.0"

    def convolution(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, window: Window, groups: int,
        relu: float | None = None, transposed: bool = False,
    ) -> WeightedPlan:  # fmt: skip
        if transposed or len(window.kernel) != 2 or len(x.shape) != 4:
            return super().convolution(x, w, b, y, window, groups, relu, transposed)
        return Convolution(self, x, w, b, y, window, groups, relu)

    def inner_product(
        self, x: Blob, w: Blob, b: Blob | None, y: Blob, axis: int, transpose: bool,
        relu: float | None = None,
    ) -> WeightedPlan:  # fmt: skip
        if transpose:
            return super().inner_product(x, w, b, y, axis, transpose, relu)
        return InnerProduct(self, x, w, b, y, axis, relu)

    def pooling(
        self, x: Blob, y: Blob, method: str, window: Window, mask: bool = False
    ) -> PoolingPlan:
        if method != "MAX" or mask or len(window.kernel) != 2:
            return super().pooling(x, y, method, window, mask)
        return MaxPooling(x, y, window)

    def relu(self, x: Blob, y: Blob, slope: float) -> Plan:
        return super().relu(x, y, slope) if slope < 0 else ReLU(x, y, slope)


class CaffePath(FireNet):
    """Our net, computed as Caffe would."""

    def backend(self, threads: int, products: str) -> Backend:
        return CaffeBackend()  # how many OpenBLAS uses is in the environment


if __name__ == "__main__":
    answer(CaffePath())
