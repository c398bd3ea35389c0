"""Matrix products by cuBLAS, on row-major matrices that lie anywhere in flat device arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ...errors import BackendError
from ..tensor import FLOAT32, Array
from .launch import kind_of

_INT_MAX = 2**31 - 1
NAMES = ("libcublas.so.13", "libcublas.so.12")
_INT, _STRIDE, _AT = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_OPERAND = (_AT, _INT, _INT, _STRIDE)  # address, type, distance of rows, distance of matrices
# Of cublasGemmStridedBatchedEx after the handle.
ARGUMENTS = (
    *(_INT, _INT, _INT, _INT, _INT, _AT),
    *(*_OPERAND, *_OPERAND, _AT, *_OPERAND, _INT, _INT, _INT),
)


class Matrix(NamedTuple):
    """A row-major matrix, or a batch of them `stride` elements apart.

    `row` is the distance of its rows in memory; `turned` reads it transposed.
    """

    array: Array
    row: int
    offset: int = 0
    stride: int = 0
    turned: bool = False

    @property
    def address(self) -> int:
        return int(self.array.data.ptr) + self.offset * int(self.array.itemsize)


class Blas:
    """Products of float32 or 16-bit matrices on one device, always summed in float32.

    Scalars are passed by address, so they live as long as this object.
    """

    def __init__(self, xp: Any, tf32: bool = False) -> None:
        """`tf32` lets tensor cores multiply float32 numbers, rounded to 11 bits."""
        self._library = xp.cuda.cublas
        lib = self._library
        self._compute = lib.CUBLAS_COMPUTE_32F_FAST_TF32 if tf32 else lib.CUBLAS_COMPUTE_32F
        run = xp.cuda.runtime
        types = (run.CUDA_R_32F, run.CUDA_R_16F, run.CUDA_R_16BF)
        self._types = dict(zip((FLOAT32, "float16", "bfloat16"), types, strict=True))
        self._handle = xp.cuda.device.get_cublas_handle
        self._direct: Callable[..., None] | None = None
        self._scalars = {value: np.array(value, np.float32) for value in (0.0, 1.0)}

    @contextmanager
    def recording(self, stream: Any) -> Iterator[None]:
        """CuPy refuses cuBLAS while a stream is captured, cuBLAS does not: ask it directly."""
        library = load()
        handle = ctypes.c_void_p(self._handle())
        _check("SetStream", library.cublasSetStream_v2(handle, ctypes.c_void_p(stream.ptr)))

        def product(_: int, *arguments: int) -> None:
            given = [kind(value) for kind, value in zip(ARGUMENTS, arguments, strict=True)]
            status = library.cublasGemmStridedBatchedEx(handle, *given)
            _check("GemmStridedBatchedEx", status)

        self._direct = product
        try:
            yield
        finally:
            self._direct = None

    def product(
        self, a: Matrix, b: Matrix, c: Matrix, m: int, n: int, k: int, batch: int = 1,
        keep: float = 0.0,
    ) -> None:  # fmt: skip
        """c = a b + keep c with a of (m, k), b of (k, n), for each of a batch; keep is 0 or 1.

        a and b are stored alike, c like them or as float32.
        """
        kinds = [kind_of(matrix.array) for matrix in (a, b, c)]
        if kinds[0] != kinds[1] or kinds[2] not in (kinds[0], FLOAT32):
            raise BackendError(f"no matrix product makes {kinds[2]} of {kinds[0]} and {kinds[1]}")
        if not all(matrix.array.flags.c_contiguous for matrix in (a, b, c)):
            raise BackendError("a matrix product needs contiguous arrays")
        if max(m, n, k, a.row, b.row, c.row, batch) > _INT_MAX:
            raise BackendError(f"a matrix product of {m} x {k} x {n} is too large for cuBLAS")
        lib = self._library
        # cuBLAS thinks in columns: it sees our matrices turned, so b goes first.
        types = [self._types[kind] for kind in kinds]
        call = self._direct or lib.gemmStridedBatchedEx
        call(
            self._handle(), _operation(lib, b), _operation(lib, a), n, m, k,
            self._scalars[1.0].ctypes.data, b.address, types[1], b.row, b.stride,
            a.address, types[0], a.row, a.stride,
            self._scalars[keep].ctypes.data, c.address, types[2], c.row, c.stride, batch,
            self._compute if kinds[0] == FLOAT32 else lib.CUBLAS_COMPUTE_32F,
            lib.CUBLAS_GEMM_DEFAULT,
        )  # fmt: skip


@cache
def load() -> Any:
    """The library that CuPy has loaded: a loader knows it by name already."""
    for name in NAMES:
        with suppress(OSError):
            return ctypes.CDLL(name)
    raise BackendError(f"--cuda-graph: cannot load {' or '.join(NAMES)}; leave out --cuda-graph")


def _check(name: str, status: int) -> None:
    if status:
        raise BackendError(f"cublas{name} failed with status {status}")


def _operation(library: Any, matrix: Matrix) -> int:
    return int(library.CUBLAS_OP_T if matrix.turned else library.CUBLAS_OP_N)
