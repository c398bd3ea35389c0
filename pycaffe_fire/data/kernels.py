"""The compiled inner loop of the transformer: one call without the GIL for a whole batch.

Images are given by address and strides, so bytes go from the database's memory map straight to
the float batch. Only imported where numba is.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from pycaffe_fire.backend.random import jit

# Imported so that the type checker sees the same with typed and untyped numba releases.
types: Any = importlib.import_module("numba.types")
extending: Any = importlib.import_module("numba.extending")

# Columns of the table that describes one image per row; strides count elements.
ADDRESS, CHANNEL_STRIDE, ROW_STRIDE, COLUMN_STRIDE, TOP, LEFT, MIRROR, IS_FLOAT = range(8)


def _cast(element: Any) -> Any:
    def cast(typing_context: Any, address: Any) -> Any:
        signature = types.CPointer(element)(types.int64)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return signature, generate

    return extending.intrinsic(cast)


_bytes_at = _cast(types.uint8)
_floats_at = _cast(types.float32)


@jit
def _transform(source: Any, row: Any, mean: Any, scale: Any, out: Any) -> None:
    channels, height, width = out.shape
    step = row[COLUMN_STRIDE]
    for c in range(channels):
        for h in range(height):
            y = h + row[TOP]
            at = c * row[CHANNEL_STRIDE] + y * row[ROW_STRIDE] + row[LEFT] * step
            line = out[c, h]
            if mean.shape[1] > 1 or mean.shape[2] > 1:
                means = mean[c, y, row[LEFT] : row[LEFT] + width]
                for w in range(width):
                    line[w] = (np.float32(source[at + w * step]) - means[w]) * scale
            elif step == 1:  # contiguous, so that this compiles to vector instructions
                for w in range(width):
                    line[w] = (np.float32(source[at + w]) - mean[c, 0, 0]) * scale
            else:
                for w in range(width):
                    line[w] = (np.float32(source[at + w * step]) - mean[c, 0, 0]) * scale
            if row[MIRROR]:
                for w in range(width // 2):
                    line[w], line[width - 1 - w] = line[width - 1 - w], line[w]


@jit
def transform_batch(table: Any, mean: Any, scale: Any, out: Any) -> None:
    """out[i] = (crop of image i - mean) * scale, mirrored where the table says so."""
    for i in range(len(table)):
        if table[i, IS_FLOAT]:
            _transform(_floats_at(table[i, ADDRESS]), table[i], mean, scale, out[i])
        else:
            _transform(_bytes_at(table[i, ADDRESS]), table[i], mean, scale, out[i])
