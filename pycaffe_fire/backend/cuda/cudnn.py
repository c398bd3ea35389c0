"""cuDNN's convolutions through ctypes, as another engine of the same plan.

Never run on hardware: the tests use a stand-in for the library that checks every descriptor. Only
algorithms that always give the same bits are asked for, and no TF32; blobs stored in 16 bits are
summed in float32.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import BackendError
from ..base import Window
from ..blob import Blob
from ..tensor import FLOAT32, Array
from .convolution import Convolution
from .launch import KINDS, kind_of
from .tensor import source

if TYPE_CHECKING:
    from . import CudaBackend

log = logging.getLogger("pycaffe_fire")

FLOAT, NCHW, CROSS_CORRELATION = 0, 0, 1
TYPES = {FLOAT32: FLOAT, "float16": 2, "bfloat16": 9}
FMA_MATH, TENSOR_OP_MATH = 3, 1  # no TF32; products of 16-bit numbers, summed in float32
FORWARD_ALGORITHM = BACKWARD_ALGORITHM = 1  # precomputed implicit GEMM; the deterministic ones
NAMES = ("libcudnn.so.9", "libcudnn.so.8")
AXES = 2  # that its convolutions want at least


def load() -> Any:
    """The C library, as installed by the system or by the wheel nvidia-cudnn-cu13 or -cu12."""
    for name in (*NAMES, ctypes.util.find_library("cudnn")):
        try:
            if name:
                return ctypes.CDLL(name)
        except OSError:
            continue
    raise BackendError(f"cannot load {' or '.join(NAMES)}; install cuDNN where the loader finds it")


class Cudnn:
    """One handle of the library on one stream."""

    def __init__(self, library: Any, stream: Any) -> None:
        self._library = library
        self.handle = self.new("Create")
        self.call("SetStream", self.handle, ctypes.c_void_p(stream.ptr))

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, f"cudnn{name}")(*arguments)
        if status:
            raise BackendError(f"cudnn{name} failed with status {status}")

    def new(self, name: str) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self.call(name, ctypes.byref(made))
        return made

    def destroy(self, descriptors: dict[str, list[ctypes.c_void_p]]) -> None:
        for kind, made in descriptors.items():
            for descriptor in made:
                self.call(f"Destroy{kind}Descriptor", descriptor)

    def tensor(self, kind: str, shape: list[int]) -> ctypes.c_void_p:
        """A descriptor of a dense tensor."""
        strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
        made = self.new("CreateTensorDescriptor")
        self.call(
            "SetTensorNdDescriptor", made, TYPES[kind], len(shape), _ints(shape), _ints(strides)
        )
        return made

    def filter(self, kind: str, shape: list[int]) -> ctypes.c_void_p:
        made = self.new("CreateFilterDescriptor")
        self.call("SetFilterNdDescriptor", made, TYPES[kind], NCHW, len(shape), _ints(shape))
        return made

    def convolution(self, kind: str, window: Window, groups: int) -> ctypes.c_void_p:
        made = self.new("CreateConvolutionDescriptor")
        numbers = (_lifted(v, f) for v, f in ((window.pad, 0), (window.stride, 1)))
        pad, stride = (_ints(v) for v in numbers)
        dilation = _ints(_lifted(window.dilation, 1))
        self.call(
            "SetConvolutionNdDescriptor", made, len(pad), pad, stride, dilation,
            CROSS_CORRELATION, FLOAT,
        )  # fmt: skip
        self.call("SetConvolutionGroupCount", made, groups)
        math = FMA_MATH if kind == FLOAT32 else TENSOR_OP_MATH
        self.call("SetConvolutionMathType", made, math)
        return made

    def workspace(self, kind: str, algorithm: int, *descriptors: Any) -> int:
        """Bytes that one direction wants."""
        size = ctypes.c_size_t()
        name = f"GetConvolution{kind}WorkspaceSize"
        self.call(name, self.handle, *descriptors, algorithm, ctypes.byref(size))
        return size.value


class Engines:
    """What plans convolutions now: `chosen` is cuDNN, or None for our own kernels."""

    def __init__(self, stream: Any, everywhere: bool) -> None:
        self._stream, self._tried = stream, everywhere
        self._cudnn: Cudnn | None = None  # once it is loaded
        if everywhere:
            self._load("--cudnn")
        self.chosen: Cudnn | None = self._cudnn

    @contextmanager
    def choosing(self, name: str) -> Iterator[None]:
        """Follow a layer's `engine` field; other names than these leave it as it is."""
        before = self.chosen
        if name == "CUDNN":
            self.chosen = self._find()
        elif name == "CAFFE":
            self.chosen = None
        try:
            yield
        finally:
            self.chosen = before

    def _find(self) -> Cudnn | None:
        """For a layer that asks; the first one has the log say whether it is there."""
        if not self._tried:
            self._tried = True
            try:
                self._load("engine: CUDNN")
                log.info("engine: CUDNN: cuDNN is loaded (never tried on hardware)")
            except BackendError as error:
                log.warning("Convolutions run on our own kernels: %s", error)
        return self._cudnn

    def _load(self, asked: str) -> None:
        try:
            self._cudnn = Cudnn(load(), self._stream)
        except BackendError as error:
            raise BackendError(f"{asked}: {error}, or leave out {asked}") from error


class Described:
    """One convolution's descriptors and the bytes of workspace that each direction wants."""

    def __init__(
        self, cudnn: Cudnn, kind: str, images: list[int], maps: list[int], weights: list[int],
        window: Window, groups: int,
    ) -> None:  # fmt: skip
        self.images, self.maps = cudnn.tensor(kind, images), cudnn.tensor(kind, maps)
        self.weights = cudnn.filter(kind, weights)
        self.window = cudnn.convolution(kind, window, groups)
        made = {"Tensor": [self.images, self.maps], "Filter": [self.weights]}
        weakref.finalize(self, cudnn.destroy, {**made, "Convolution": [self.window]})
        x, w, y, conv = self.images, self.weights, self.maps, self.window
        self.bytes = {
            "Forward": cudnn.workspace("Forward", FORWARD_ALGORITHM, x, w, conv, y),
            "BackwardData": cudnn.workspace("BackwardData", BACKWARD_ALGORITHM, w, y, conv, x),
            "BackwardFilter": cudnn.workspace("BackwardFilter", BACKWARD_ALGORITHM, x, y, conv, w),
        }


class CudnnConvolution(Convolution):
    """Our convolution with the three products by cuDNN; bias and ReLU stay ours."""

    makes_patches = False

    def __init__(
        self, backend: CudaBackend, cudnn: Cudnn, x: Blob, w: Blob, b: Blob | None, y: Blob,
        window: Window, groups: int, relu: float | None, transposed: bool,
    ) -> None:  # fmt: skip
        super().__init__(backend, x, w, b, y, window, groups, relu, transposed)
        self._cudnn = cudnn
        axes = len(window.kernel)
        image, small = (y, x) if transposed else (x, y)
        sizes = [_lifted(blob.shape[-axes:], 1) for blob in (image, small)]
        shapes = (
            [self._samples, self._channels, *sizes[0]],
            [self._samples, self._maps, *sizes[1]],
            [self._maps, self._channels // groups, *_lifted(window.kernel, 1)],
        )
        self._described = {
            kind: Described(cudnn, kind, *shapes, window, groups)
            for kind in {tensor.kind for tensor in (y.value, y.gradient, x.gradient)}
        }
        backend.reserve(max(-(-max(d.bytes.values()) // 4) for d in self._described.values()))
        kind = y.gradient.kind
        self._dw = backend.keep(self, 0 if kind == FLOAT32 else w.count, KINDS[kind])

    def _weights(self, kind: str) -> Array:
        return source(self.w.value, kind)

    def _lower(self, images: Array, w: Array, maps: Array) -> None:
        d = self._described[kind_of(images)]
        pairs = (d.images, images), (d.weights, w), (d.maps, maps)
        self._run(d, "Forward", FORWARD_ALGORITHM, *pairs, 0.0)

    def _raise(self, maps: Array, w: Array, images: Array) -> None:
        d = self._described[kind_of(images)]
        pairs = (d.weights, w), (d.maps, maps), (d.images, images)
        self._run(d, "BackwardData", BACKWARD_ALGORITHM, *pairs, 0.0)

    def _correlate(self, images: Array, maps: Array, dw: Array, keep: float) -> None:
        """cuDNN stores gradients of weights as it stores the blobs; ours are float32."""
        kind = kind_of(images)
        d = self._described[kind]
        pairs = (d.images, images), (d.maps, maps)
        if kind == FLOAT32:
            self._run(d, "BackwardFilter", BACKWARD_ALGORITHM, *pairs, (d.weights, dw), keep)
            return
        self._run(d, "BackwardFilter", BACKWARD_ALGORITHM, *pairs, (d.weights, self._dw), 0.0)
        self.kernels["add_widened", kind](dw.size, self._dw, keep, dw)

    def _run(
        self, d: Described, name: str, algorithm: int, first: Any, second: Any, out: Any,
        keep: float,
    ) -> None:  # fmt: skip
        """out = the op of first and second + keep * out."""
        size = d.bytes[name]
        scratch = self.backend.scratch(max(1, -(-size // 4)))
        one, beta = ctypes.c_float(1), ctypes.c_float(keep)
        self._cudnn.call(
            f"Convolution{name}", self._cudnn.handle, ctypes.byref(one), first[0],
            _address(first[1]), second[0], _address(second[1]), d.window, algorithm,
            _address(scratch), ctypes.c_size_t(size), ctypes.byref(beta), out[0], _address(out[1]),
        )  # fmt: skip


def _lifted(values: Any, filling: int) -> list[int]:
    """One number for each spatial axis, with more axes in front where there are too few."""
    return [filling] * (AXES - len(values)) + list(values)


def _ints(values: list[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def _address(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(int(array.data.ptr))
