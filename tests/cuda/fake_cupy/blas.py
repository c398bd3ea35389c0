"""cuBLAS's strided batched product, on the same raw addresses and column-major conventions."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from . import cuda

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1


def _scalar(address: int) -> float:
    return float(ctypes.c_float.from_address(address).value)


def _matrix(address: int, rows: int, columns: int, leading: int) -> Any:
    """A column-major (rows, columns) view of memory."""
    if leading < rows:
        raise RuntimeError(f"CUBLAS_STATUS_INVALID_VALUE: leading dimension {leading} < {rows}")
    size = leading * (columns - 1) + rows
    flat = np.ctypeslib.as_array((ctypes.c_float * size).from_address(address))
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (4, 4 * leading))


def sgemmStridedBatched(
    handle: int, transa: int, transb: int, m: int, n: int, k: int, alpha: int, A: int, lda: int,
    strideA: int, B: int, ldb: int, strideB: int, beta: int, C: int, ldc: int, strideC: int,
    batchCount: int,
) -> None:  # fmt: skip
    cuda.check_queue("cuBLAS")
    scale, keep = _scalar(alpha), _scalar(beta)
    for i in range(batchCount):
        a = _matrix(A + 4 * i * strideA, *((k, m) if transa else (m, k)), lda)
        b = _matrix(B + 4 * i * strideB, *((n, k) if transb else (k, n)), ldb)
        c = _matrix(C + 4 * i * strideC, m, n, ldc)
        with np.errstate(all="ignore"):
            product = scale * ((a.T if transa else a) @ (b.T if transb else b))
            c[...] = product + keep * c if keep else product
