"""cuBLAS's strided batched product, on the same raw addresses and column-major conventions."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import cuda

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUBLAS_GEMM_DEFAULT = 68, 77, -1
KINDS: dict[int, Any] = {0: np.dtype(np.float32), 2: np.dtype(np.float16), 14: np.dtype(np.uint16)}


def _scalar(address: int) -> float:
    return float(ctypes.c_float.from_address(address).value)


def _matrix(address: int, kind: int, rows: int, columns: int, leading: int) -> Any:
    """A column-major (rows, columns) view of memory; bfloat16 as its bits."""
    if leading < rows:
        raise RuntimeError(f"CUBLAS_STATUS_INVALID_VALUE: leading dimension {leading} < {rows}")
    size = leading * (columns - 1) + rows
    bytes_each = KINDS[kind].itemsize
    raw = (ctypes.c_ubyte * (size * bytes_each)).from_address(address)
    flat = np.frombuffer(raw, KINDS[kind])
    return np.lib.stride_tricks.as_strided(
        flat, (rows, columns), (bytes_each, bytes_each * leading)
    )


def read_floats(matrix: Any) -> Any:
    if matrix.dtype == np.uint16:
        return (matrix.astype(np.uint32) << 16).view(np.float32)
    return matrix.astype(np.float32, copy=False)


def rounded(matrix: Any) -> Any:
    """float32 numbers as TF32 sees them: 10 bits behind the first, rounded to nearest."""
    bits = np.ascontiguousarray(matrix, np.float32).view(np.uint32)
    return ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)


def write_floats(matrix: Any, values: Any) -> None:
    if matrix.dtype == np.uint16:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        matrix[...] = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    else:
        matrix[...] = values


def gemmStridedBatchedEx(
    handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int,
    lda: int, strideA: int, B: int, Btype: int, ldb: int, strideB: int, beta: int, C: int,
    Ctype: int, ldc: int, strideC: int, batchCount: int, computeType: int, algo: int,
) -> None:  # fmt: skip
    if cuda.capturing() is not None:  # the real CuPy says so as well
        raise NotImplementedError("calling cuBLAS API during stream capture is unsupported")
    enqueue(
        transa, transb, m, n, k, alpha, A, Atype, lda, strideA, B, Btype, ldb, strideB, beta, C,
        Ctype, ldc, strideC, batchCount, computeType, algo,
    )  # fmt: skip


def enqueue(*given: Any, kept: Any = None) -> None:
    """Queue a product; `kept` lives as long as it does."""

    def step() -> None:
        multiply(*given)
        assert kept is None or kept

    transa, transb, m, n, k = given[:5]
    a, b, c, batch = given[6:10], given[10:14], given[15:19], given[19]
    reads = [
        _extent(a, *((k, m) if transa else (m, k)), batch),
        _extent(b, *((n, k) if transb else (k, n)), batch),
    ]
    cuda.enqueue("cuBLAS", step, reads, [_extent(c, m, n, batch)])


def _extent(operand: Any, rows: int, columns: int, batch: int) -> tuple[int, int]:
    """First and last byte of a batch of column-major matrices."""
    address, kind, leading, stride = operand
    elements = (batch - 1) * stride + (columns - 1) * leading + rows
    return address, address + elements * KINDS[kind].itemsize


def multiply(
    transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, Atype: int,
    lda: int, strideA: int, B: int, Btype: int, ldb: int, strideB: int, beta: int, C: int,
    Ctype: int, ldc: int, strideC: int, batchCount: int, computeType: int, algo: int,
) -> None:  # fmt: skip
    tf32 = computeType == CUBLAS_COMPUTE_32F_FAST_TF32
    if tf32 and Atype:
        raise RuntimeError("TF32 is for float32 matrices")
    if Atype != Btype or Ctype not in (Atype, 0) or not (tf32 or computeType == 68) or algo != -1:
        raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED")
    scale, keep = _scalar(alpha), _scalar(beta)
    steps = [KINDS[t].itemsize for t in (Atype, Btype, Ctype)]
    for i in range(batchCount):
        a = read_floats(
            _matrix(A + steps[0] * i * strideA, Atype, *((k, m) if transa else (m, k)), lda)
        )
        b = read_floats(
            _matrix(B + steps[1] * i * strideB, Btype, *((n, k) if transb else (k, n)), ldb)
        )
        c = _matrix(C + steps[2] * i * strideC, Ctype, m, n, ldc)
        if tf32:
            a, b = rounded(a), rounded(b)
        with np.errstate(all="ignore"):
            product = scale * ((a.T if transa else a) @ (b.T if transb else b))
            write_floats(c, product + keep * read_floats(c) if keep else product)


class Library:
    """The C library itself, which captures where CuPy refuses to."""

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:
        return 0 if handle.value and stream.value else 1

    def cublasGemmStridedBatchedEx(self, handle: Any, *arguments: Any) -> int:
        given = [argument.value for argument in arguments]
        alpha, beta = given[5], given[14]  # read now, as the real library does
        scalars = [ctypes.c_float(_scalar(at)) for at in (alpha, beta)]
        given[5], given[14] = (ctypes.addressof(scalar) for scalar in scalars)
        enqueue(*given, kept=scalars)
        return 0
