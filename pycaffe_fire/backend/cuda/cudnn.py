"""cuDNN's convolutions through ctypes, as another engine behind the same plan.

Never run on hardware: the tests use a stand-in for the library that checks every descriptor. Only
algorithms that always give the same bits are asked for, and no TF32.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from ...blob import Blob
from ...errors import BackendError
from ..base import Window
from ..tensor import Array
from .convolution import Convolution

if TYPE_CHECKING:
    from . import CudaBackend

FLOAT, NCHW, CROSS_CORRELATION, FMA_MATH = 0, 0, 1, 3
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
    raise BackendError(
        f"--cudnn: cannot load {' or '.join(NAMES)}; install cuDNN where the loader finds it, or "
        f"leave out --cudnn"
    )


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

    def tensor(self, shape: list[int]) -> ctypes.c_void_p:
        """A descriptor of a dense float32 tensor."""
        strides = [int(np.prod(shape[i + 1 :])) for i in range(len(shape))]
        made = self.new("CreateTensorDescriptor")
        self.call("SetTensorNdDescriptor", made, FLOAT, len(shape), _ints(shape), _ints(strides))
        return made

    def filter(self, shape: list[int]) -> ctypes.c_void_p:
        made = self.new("CreateFilterDescriptor")
        self.call("SetFilterNdDescriptor", made, FLOAT, NCHW, len(shape), _ints(shape))
        return made

    def convolution(self, window: Window, groups: int) -> ctypes.c_void_p:
        made = self.new("CreateConvolutionDescriptor")
        numbers = (_lifted(v, f) for v, f in ((window.pad, 0), (window.stride, 1)))
        pad, stride = (_ints(v) for v in numbers)
        dilation = _ints(_lifted(window.dilation, 1))
        self.call(
            "SetConvolutionNdDescriptor", made, len(pad), pad, stride, dilation,
            CROSS_CORRELATION, FLOAT,
        )  # fmt: skip
        self.call("SetConvolutionGroupCount", made, groups)
        self.call("SetConvolutionMathType", made, FMA_MATH)
        return made

    def workspace(self, kind: str, algorithm: int, *descriptors: Any) -> int:
        """Bytes that one direction wants."""
        size = ctypes.c_size_t()
        name = f"GetConvolution{kind}WorkspaceSize"
        self.call(name, self.handle, *descriptors, algorithm, ctypes.byref(size))
        return size.value


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
        self._images = cudnn.tensor([self._samples, self._channels, *sizes[0]])
        self._small = cudnn.tensor([self._samples, self._maps, *sizes[1]])
        shape = [self._maps, self._channels // groups, *_lifted(window.kernel, 1)]
        self._filter = cudnn.filter(shape)
        self._window = cudnn.convolution(window, groups)
        made = {"Tensor": [self._images, self._small]}
        made |= {"Filter": [self._filter], "Convolution": [self._window]}
        weakref.finalize(self, cudnn.destroy, made)
        big, little, weights, conv = self._images, self._small, self._filter, self._window
        self._sizes_of = {
            "Forward": cudnn.workspace("Forward", FORWARD_ALGORITHM, big, weights, conv, little),
            "BackwardData": cudnn.workspace(
                "BackwardData", BACKWARD_ALGORITHM, weights, little, conv, big
            ),
            "BackwardFilter": cudnn.workspace(
                "BackwardFilter", BACKWARD_ALGORITHM, big, little, conv, weights
            ),
        }
        backend.reserve(-(-max(self._sizes_of.values()) // 4))

    def _lower(self, images: Array, w: Array, maps: Array) -> None:
        pairs = (self._images, images), (self._filter, w), (self._small, maps)
        self._run("Forward", FORWARD_ALGORITHM, *pairs, 0.0)

    def _raise(self, maps: Array, w: Array, images: Array) -> None:
        pairs = (self._filter, w), (self._small, maps), (self._images, images)
        self._run("BackwardData", BACKWARD_ALGORITHM, *pairs, 0.0)

    def _correlate(self, images: Array, maps: Array, dw: Array, keep: float) -> None:
        pairs = (self._images, images), (self._small, maps), (self._filter, dw)
        self._run("BackwardFilter", BACKWARD_ALGORITHM, *pairs, keep)

    def _run(
        self, kind: str, algorithm: int, first: Any, second: Any, out: Any, keep: float
    ) -> None:
        """out = the op of first and second + keep * out."""
        size = self._sizes_of[kind]
        scratch = self.backend.scratch(max(1, -(-size // 4)))
        one, beta = ctypes.c_float(1), ctypes.c_float(keep)
        self._cudnn.call(
            f"Convolution{kind}", self._cudnn.handle, ctypes.byref(one), first[0],
            _address(first[1]), second[0], _address(second[1]), self._window, algorithm,
            _address(scratch), ctypes.c_size_t(size), ctypes.byref(beta), out[0], _address(out[1]),
        )  # fmt: skip


def _lifted(values: Any, filling: int) -> list[int]:
    """One number for each spatial axis, with more axes in front where there are too few."""
    return [filling] * (AXES - len(values)) + list(values)


def _ints(values: list[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)


def _address(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(int(array.data.ptr))
