"""The oneDNN 3.x C API through ctypes: finding the library, its enums, and owned handles.

Nothing here knows about tensors or nets; the rest of this folder never touches ctypes directly.
The enum values are the same in every 3.x release.
"""

from __future__ import annotations

import ctypes as C
import importlib.metadata
import logging
import os
import re
from collections.abc import Sequence
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

from ...errors import BackendError
from ..openmp import LIBGOMP, bounded_spin

log = logging.getLogger("pycaffe_fire")

LIBRARY_VARIABLE = "PYCAFFE_FIRE_DNNL"
WHEELS = ("onednn-cpu-gomp", "onednn-cpu-tbb", "onednn-cpu-iomp")
SONAME = "libdnnl.so.3"

BF16, F32 = 2, 3
ISA_WITH_BF16 = 0xE7  # bits of dnnl_cpu_isa_t: AVX-512 with bfloat16, which AMX has, too
FORWARD_TRAINING, BACKWARD, BACKWARD_DATA = 64, 128, 160
CONVOLUTION_DIRECT, DECONVOLUTION_DIRECT = 1, 10
RELU, RELU_FROM_OUTPUT = 32, 256
SOFTMAX = 0x30000
POOL_MAX, POOL_AVE_INCLUDE, POOL_AVE_EXCLUDE = 511, 767, 1023
BINARY_MULTIPLY = 0x1FFF1
BINARY_ADD = 0x1FFF0
NORM_GLOBAL, NORM_SCALE, NORM_SHIFT, NORM_RELU = 1, 2, 4, 8
MULTIPLE_SOURCE = 1024
ANY_LAYOUT = 1
PLAIN_TAGS = {1: 2, 2: 3, 3: 4, 4: 5, 5: 6, 6: 7}

QUERY = {
    "src": 129, "diff_src": 130, "weights": 131, "diff_weights": 132,
    "dst": 133, "diff_dst": 134, "workspace": 135,
}  # fmt: skip
ARGUMENT = {
    "src": 1, "src1": 2, "dst": 17, "weights": 33, "bias": 41, "workspace": 64,
    "diff_src": 129, "diff_dst": 145, "diff_weights": 161, "diff_bias": 169,
    "dst_for_backward": 17, "mean": 49, "variance": 50, "scale": 51, "shift": 52,
    "diff_scale": 255, "diff_shift": 256,
}  # fmt: skip
STATUS = {
    1: "out of memory", 2: "invalid arguments", 3: "unimplemented",
    4: "last implementation reached", 5: "runtime error", 6: "not required",
}  # fmt: skip

_void, _int, _i64, _float, _size = C.c_void_p, C.c_int, C.c_int64, C.c_float, C.c_size_t
_out, _dims = C.POINTER(C.c_void_p), C.POINTER(C.c_int64)
_window = [_dims] * 4
_SIGNATURES: dict[str, list[Any]] = {
    "engine_create": [_out, _int, _size],
    "stream_create": [_out, _void, C.c_uint],
    "memory_desc_create_with_tag": [_out, _int, _dims, _int, _int],
    "memory_desc_create_with_strides": [_out, _int, _dims, _int, _dims],
    "memory_desc_create_submemory": [_out, _void, _dims, _dims],
    "memory_desc_permute_axes": [_out, _void, C.POINTER(_int)],
    "memory_desc_clone": [_out, _void],
    "memory_desc_destroy": [_void],
    "memory_desc_query": [_void, _int, _void],
    "memory_create": [_out, _void, _void, _void],
    "memory_destroy": [_void],
    "memory_set_data_handle": [_void, _void],
    "primitive_create": [_out, _void],
    "primitive_destroy": [_void],
    "primitive_desc_destroy": [_void],
    "primitive_desc_query": [_void, _int, _int, _void],
    "primitive_attr_create": [_out],
    "primitive_attr_destroy": [_void],
    "primitive_attr_set_post_ops": [_void, _void],
    "post_ops_create": [_out],
    "post_ops_destroy": [_void],
    "post_ops_append_eltwise": [_void, _int, _float, _float],
    "post_ops_append_sum": [_void, _float, C.c_int32, _int],
    "post_ops_append_binary": [_void, _int, _void],
    "convolution_forward_primitive_desc_create":
        [_out, _void, _int, _int, _void, _void, _void, _void, *_window, _void],
    "convolution_backward_data_primitive_desc_create":
        [_out, _void, _int, _void, _void, _void, *_window, _void, _void],
    "convolution_backward_weights_primitive_desc_create":
        [_out, _void, _int, _void, _void, _void, _void, *_window, _void, _void],
    "inner_product_forward_primitive_desc_create":
        [_out, _void, _int, _void, _void, _void, _void, _void],
    "inner_product_backward_data_primitive_desc_create":
        [_out, _void, _void, _void, _void, _void, _void],
    "inner_product_backward_weights_primitive_desc_create":
        [_out, _void, _void, _void, _void, _void, _void, _void],
    "pooling_forward_primitive_desc_create":
        [_out, _void, _int, _int, _void, _void, _dims, *_window, _void],
    "pooling_backward_primitive_desc_create":
        [_out, _void, _int, _void, _void, _dims, *_window, _void, _void],
    "eltwise_forward_primitive_desc_create":
        [_out, _void, _int, _int, _void, _void, _float, _float, _void],
    "eltwise_backward_primitive_desc_create":
        [_out, _void, _int, _void, _void, _void, _float, _float, _void, _void],
    "batch_normalization_forward_primitive_desc_create":
        [_out, _void, _int, _void, _void, _float, C.c_uint, _void],
    "batch_normalization_backward_primitive_desc_create":
        [_out, _void, _int, _void, _void, _void, _float, C.c_uint, _void, _void],
    "softmax_forward_primitive_desc_create":
        [_out, _void, _int, _int, _void, _void, _int, _void],
    "matmul_primitive_desc_create": [_out, _void, _void, _void, _void, _void, _void],
    "binary_primitive_desc_create": [_out, _void, _int, _void, _void, _void, _void],
    "concat_primitive_desc_create": [_out, _void, _void, _int, _int, _out, _void],
    "sum_primitive_desc_create": [_out, _void, _void, _int, C.POINTER(_float), _out, _void],
    "reorder_primitive_desc_create": [_out, _void, _void, _void, _void, _void],
}  # fmt: skip
for _kind in ("forward", "backward_data", "backward_weights"):
    _SIGNATURES[f"deconvolution_{_kind}_primitive_desc_create"] = _SIGNATURES[
        f"convolution_{_kind}_primitive_desc_create"
    ]


class _Version(C.Structure):
    _fields_ = [("major", _int), ("minor", _int), ("patch", _int)]


class ExecArgument(C.Structure):
    """dnnl_exec_arg_t: which argument of a primitive, and the memory bound to it."""

    _fields_ = [("argument", _int), ("memory", _void)]


def _candidates() -> list[str]:
    """Where a libdnnl may be: the user's choice alone, or the wheels and then the system's."""
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return [named]
    found = []
    for wheel in WHEELS:
        try:
            files = importlib.metadata.files(wheel) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found += [str(f.locate()) for f in files if f.name == SONAME]
    return [*found, SONAME]


class Library:
    """A loaded libdnnl with its CPU engine; `version` is (major, minor, patch)."""

    def __init__(self) -> None:
        with bounded_spin():
            self._lib, self.path = self._load()
            self._omp = self._openmp()
        for name, arguments in _SIGNATURES.items():
            function = getattr(self._lib, f"dnnl_{name}")
            function.argtypes, function.restype = arguments, _int
        self._lib.dnnl_primitive_desc_query_md.argtypes = [_void, _int, _int]
        self._lib.dnnl_primitive_desc_query_md.restype = _void
        self._lib.dnnl_memory_desc_get_size.argtypes = [_void]
        self._lib.dnnl_memory_desc_get_size.restype = _size
        self._lib.dnnl_memory_desc_equal.argtypes = [_void, _void]
        self._lib.dnnl_memory_desc_equal.restype = _int
        self._lib.dnnl_get_effective_cpu_isa.argtypes = []
        self._lib.dnnl_get_effective_cpu_isa.restype = _int
        self.execute = self._lib.dnnl_primitive_execute
        self.execute.argtypes, self.execute.restype = [_void, _void, _int, _void], _int
        # Layouts in use, by shape: layers of a net have few shapes.
        self.plain: WeakValueDictionary[tuple[int, ...], Any] = WeakValueDictionary()
        self.references: list[str] = []  # ops that run on reference kernels, as they were planned
        self.engine = self.new("engine_create", 1, 0)
        self.stream = self.new("stream_create", self.engine, 1)

    def _load(self) -> tuple[C.CDLL, str]:
        problems = []
        for path in _candidates():
            try:
                lib = C.CDLL(path)
            except OSError as error:
                problems.append(str(error))
                continue
            if not hasattr(lib, "dnnl_version"):
                problems.append(f"{path}: not a oneDNN library")
                continue
            lib.dnnl_version.restype = C.POINTER(_Version)
            version = lib.dnnl_version().contents
            self.version = (version.major, version.minor, version.patch)
            if version.major == 3:
                return lib, path
            problems.append(f"{path}: version {version.major}.{version.minor}, want 3.x")
        raise BackendError(
            f"no oneDNN library could be loaded ({'; '.join(problems)}); install the "
            f"onednn-cpu-gomp wheel and libgomp1, or set {LIBRARY_VARIABLE} to a libdnnl 3.x"
        )

    def _openmp(self) -> Any:
        """libgomp, whose per-thread setting decides how many threads a new primitive uses."""
        try:
            return C.CDLL(LIBGOMP)
        except OSError:
            return None

    def set_threads(self, threads: int) -> None:
        """Primitives that this Python thread creates from now on use `threads` threads."""
        if self._omp is not None:
            self._omp.omp_set_num_threads(threads)

    @property
    def multiplies_bf16(self) -> bool:
        """Has the CPU instructions for products of bfloat16? Without them they are no faster."""
        found = self._lib.dnnl_get_effective_cpu_isa()
        return bool(found & ISA_WITH_BF16 == ISA_WITH_BF16)

    def call(self, name: str, *arguments: Any) -> None:
        """Call dnnl_<name>; a status other than success raises BackendError."""
        status = getattr(self._lib, f"dnnl_{name}")(*arguments)
        if status:
            raise BackendError(f"oneDNN {name}: {STATUS.get(status, status)}")

    def new(self, name: str, *arguments: Any) -> int:
        """Call dnnl_<name>, whose first parameter receives a new handle, and return that."""
        handle = C.c_void_p()
        self.call(name, C.byref(handle), *arguments)
        if handle.value is None:
            raise BackendError(f"oneDNN {name}: no handle")
        return handle.value

    def destroy(self, what: str, handle: int) -> None:
        getattr(self._lib, f"dnnl_{what}_destroy")(handle)

    def equal(self, a: int, b: int) -> bool:
        return bool(self._lib.dnnl_memory_desc_equal(a, b))

    def size(self, descriptor: int) -> int:
        return int(self._lib.dnnl_memory_desc_get_size(descriptor))

    def query_descriptor(self, primitive_descriptor: int, what: str) -> int | None:
        """The memory descriptor a primitive chose for one argument, as our handle."""
        queried = self._lib.dnnl_primitive_desc_query_md(primitive_descriptor, QUERY[what], 0)
        if not queried or not self.size(queried):
            return None
        return self.new("memory_desc_clone", queried)

    def implementation(self, primitive_descriptor: int) -> str:
        """The name of the chosen implementation, such as jit:avx2 or conv:any+ref:any."""
        text = C.c_char_p()
        self.call("primitive_desc_query", primitive_descriptor, 8, 0, C.byref(text))
        return (text.value or b"").decode()

    def is_reference(self, primitive_descriptor: int) -> bool:
        """Did the library find nothing but loops over single elements, with no fast kernel?"""
        return consists_of(self.implementation(primitive_descriptor), ("ref",))

    def report_reference(self, primitive_descriptor: int, shapes: Sequence[list[int]]) -> None:
        """Say once that an op will be slow: a plan should have found another way."""
        op = f"{self.implementation(primitive_descriptor)} over {shapes}"
        if op not in self.references:
            self.references.append(op)
            log.warning("oneDNN has only its slow reference kernel for one op: %s", op)

    def describe(self, descriptor: int) -> dict[str, tuple[int, ...]]:
        """Strides, padded dims and inner blocks of a memory descriptor."""
        dims, count = C.c_int(), C.c_int()
        self.call("memory_desc_query", descriptor, 256, C.byref(dims))
        self.call("memory_desc_query", descriptor, 263, C.byref(count))

        def numbers(query: int, n: int) -> tuple[int, ...]:
            pointer = _dims()
            self.call("memory_desc_query", descriptor, query, C.byref(pointer))
            return tuple(pointer[:n])

        return {
            "strides": numbers(14, dims.value),
            "padded": numbers(260, dims.value),
            "blocks": numbers(264, count.value),
            "block_axes": numbers(265, count.value),
        }


@cache
def consists_of(implementation: str, words: tuple[str, ...]) -> bool:
    """Is one of the parts of an implementation's name (conv:any+ref:any) one of these words?"""
    return any(part in words for part in re.split(r"[:+]", implementation))


def addend(number: int) -> int:
    """The argument that is the second source of a fused operation, counted from 0."""
    return 32768 * (number + 1) | 2


def dims(values: Sequence[int]) -> Any:
    """A dnnl_dims_t."""
    return (C.c_int64 * 12)(*values)


def handles(values: Sequence[int]) -> Any:
    """A C array of handles."""
    return (C.c_void_p * len(values))(*values)


def axis_numbers(values: Sequence[int]) -> Any:
    return (C.c_int * len(values))(*values)


def floats(values: Sequence[float]) -> Any:
    """A C array of floats."""
    return (C.c_float * len(values))(*values)
