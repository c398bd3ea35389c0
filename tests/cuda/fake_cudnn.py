"""A stand-in for libcudnn: checks every call and descriptor, computes with the NumPy backend."""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from pycaffe_fire.backend.base import Window
from pycaffe_fire.backend.blob import Blob
from pycaffe_fire.backend.numpy import NumPyBackend
from tests.cuda.fake_cupy.blas import read_floats, write_floats

BAD_PARAM = 3
TYPES: dict[int, Any] = {0: np.dtype(np.float32), 2: np.dtype(np.float16), 9: np.dtype(np.uint16)}
WORKSPACE = 20


@dataclass
class Convolution:
    window: Window | None = None
    groups: int = 1
    math: int = 0


class FakeCudnn:
    """The library's functions by their C names; `calls` counts them."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.things: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        def function(*arguments: Any) -> int:
            self.calls[name] += 1
            return getattr(self, "_" + name.removeprefix("cudnn"))(*arguments) or 0

        return function

    def _make(self, out: Any, thing: Any) -> None:
        out._obj.value = max(self.things, default=0) + 1
        self.things[out._obj.value] = thing

    def _Create(self, out: Any) -> None:
        self._make(out, "handle")

    def _SetStream(self, handle: Any, stream: Any) -> int:
        return 0 if self.things[handle.value] == "handle" and stream.value else BAD_PARAM

    def _CreateTensorDescriptor(self, out: Any) -> None:
        self._make(out, None)

    _CreateFilterDescriptor = _CreateTensorDescriptor

    def _DestroyTensorDescriptor(self, made: Any) -> None:
        del self.things[made.value]

    _DestroyFilterDescriptor = _DestroyConvolutionDescriptor = _DestroyTensorDescriptor

    def _CreateConvolutionDescriptor(self, out: Any) -> None:
        self._make(out, Convolution())

    def _SetTensorNdDescriptor(self, made: Any, kind: int, n: int, dims: Any, strides: Any) -> int:
        dense = [int(np.prod(list(dims)[i + 1 :])) for i in range(n)]
        wrong = len(dims) != n or list(strides) != dense or min(dims) < 1
        if kind not in TYPES or n < 4 or wrong:
            return BAD_PARAM
        self.things[made.value] = (kind, tuple(dims))
        return 0

    def _SetFilterNdDescriptor(self, made: Any, kind: int, form: int, n: int, dims: Any) -> int:
        if kind not in TYPES or form != 0 or n < 4 or len(dims) != n or min(dims) < 1:
            return BAD_PARAM
        self.things[made.value] = (kind, tuple(dims))
        return 0

    def _SetConvolutionNdDescriptor(
        self, made: Any, n: int, pad: Any, stride: Any, dilation: Any, mode: int, kind: int
    ) -> int:
        if mode != 1 or kind != 0 or n < 2 or min(stride) < 1 or min(dilation) < 1:
            return BAD_PARAM
        window = Window((), tuple(stride), tuple(pad), tuple(dilation))
        self.things[made.value].window = window
        return 0

    def _SetConvolutionGroupCount(self, made: Any, groups: int) -> None:
        self.things[made.value].groups = groups

    def _SetConvolutionMathType(self, made: Any, math: int) -> None:
        self.things[made.value].math = math

    def _fit(self, image: Any, weights: Any, conv: Any, maps: Any) -> Any:
        """(image, weights, maps) shapes and the window, checked against each other."""
        kinds, (x, w, y) = zip(*(self.things[d.value] for d in (image, weights, maps)), strict=True)
        about = self.things[conv.value]
        window = Window(w[2:], about.window.stride, about.window.pad, about.window.dilation)
        assert len(set(kinds)) == 1, "blobs, maps and weights must be stored alike"
        assert about.math == (1 if kinds[0] else 3), "TF32 must be off"
        assert x[0] == y[0] and w[0] == y[1] and w[1] * about.groups == x[1]
        for i, size in enumerate(x[2:]):
            extent = window.dilation[i] * (window.kernel[i] - 1) + 1
            assert (size + 2 * window.pad[i] - extent) // window.stride[i] + 1 == y[2 + i]
        return x, w, y, window, about.groups

    def _GetConvolutionForwardWorkspaceSize(
        self, handle: Any, x: Any, w: Any, conv: Any, y: Any, algorithm: int, out: Any
    ) -> None:
        self._fit(x, w, conv, y)
        out._obj.value = WORKSPACE

    def _GetConvolutionBackwardDataWorkspaceSize(
        self, handle: Any, w: Any, dy: Any, conv: Any, dx: Any, algorithm: int, out: Any
    ) -> None:
        self._fit(dx, w, conv, dy)
        out._obj.value = WORKSPACE

    def _GetConvolutionBackwardFilterWorkspaceSize(
        self, handle: Any, x: Any, dy: Any, conv: Any, dw: Any, algorithm: int, out: Any
    ) -> None:
        self._fit(x, dw, conv, dy)
        out._obj.value = WORKSPACE

    def _ConvolutionForward(
        self, handle: Any, alpha: Any, x: Any, x_at: Any, w: Any, w_at: Any, conv: Any,
        algorithm: int, space: Any, size: Any, beta: Any, y: Any, y_at: Any,
    ) -> None:  # fmt: skip
        self._check_run(alpha, algorithm, size)
        plan, bx, bw, by = self._plan(x, w, conv, y)
        bx.data[...], bw.data[...] = self._read(x, x_at), self._read(w, w_at)
        plan.forward()
        self._write(y, y_at, by.data, beta)

    def _ConvolutionBackwardData(
        self, handle: Any, alpha: Any, w: Any, w_at: Any, dy: Any, dy_at: Any, conv: Any,
        algorithm: int, space: Any, size: Any, beta: Any, dx: Any, dx_at: Any,
    ) -> None:  # fmt: skip
        self._check_run(alpha, algorithm, size)
        plan, bx, bw, by = self._plan(dx, w, conv, dy)
        bw.data[...], by.diff[...] = self._read(w, w_at), self._read(dy, dy_at)
        plan.backward(True, False, False)
        self._write(dx, dx_at, bx.diff, beta)

    def _ConvolutionBackwardFilter(
        self, handle: Any, alpha: Any, x: Any, x_at: Any, dy: Any, dy_at: Any, conv: Any,
        algorithm: int, space: Any, size: Any, beta: Any, dw: Any, dw_at: Any,
    ) -> None:  # fmt: skip
        self._check_run(alpha, algorithm, size)
        plan, bx, bw, by = self._plan(x, dw, conv, dy)
        bx.data[...], by.diff[...] = self._read(x, x_at), self._read(dy, dy_at)
        plan.backward(False, True, False)
        self._write(dw, dw_at, bw.diff, beta)

    def _check_run(self, alpha: Any, algorithm: int, size: Any) -> None:
        assert alpha._obj.value == 1 and algorithm == 1 and size.value == WORKSPACE

    def _plan(self, x: Any, w: Any, conv: Any, y: Any) -> Any:
        *shapes, window, groups = self._fit(x, w, conv, y)
        backend = NumPyBackend()
        blobs = [Blob(backend, shape) for shape in shapes]
        plan = backend.convolution(blobs[0], blobs[1], None, blobs[2], window, groups)
        return (plan, *blobs)

    def _view(self, about: Any, address: Any) -> Any:
        kind, shape = self.things[about.value]
        size = int(np.prod(shape)) * TYPES[kind].itemsize
        raw = (ctypes.c_ubyte * size).from_address(address.value)
        return np.frombuffer(raw, TYPES[kind]).reshape(shape)

    def _read(self, about: Any, address: Any) -> Any:
        return read_floats(self._view(about, address))

    def _write(self, about: Any, address: Any, values: Any, beta: Any) -> None:
        view, keep = self._view(about, address), beta._obj.value
        write_floats(view, values + keep * read_floats(view) if keep else values)
