"""What travels between ranks: float32 as it is, or rounded to 16 bits and summed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import SolverError
from ...registry import Registry

Floats = NDArray[np.float32]


class Float32:
    """Numbers travel as they are."""

    name = "float32"
    dtype: Any = np.float32

    def encode(self, values: Floats, xp: Any = np) -> NDArray[Any]:
        return values

    def decode(self, message: NDArray[Any], out: Floats) -> None:
        if message is not out:
            out[...] = message


class Float16:
    """IEEE half precision: 11 bits, small range."""

    name = "float16"
    dtype: Any = np.float16

    def encode(self, values: Floats, xp: Any = np) -> NDArray[Any]:
        return values.astype(np.float16)

    def decode(self, message: NDArray[Any], out: Floats) -> None:
        out[...] = message


class BFloat16:
    """The upper half of a float32, rounded to nearest even: 8 bits, float32's range."""

    name = "bfloat16"
    dtype: Any = np.uint16

    def encode(self, values: Floats, xp: Any = np) -> NDArray[Any]:
        bits = values.view(np.uint32)
        rounded = bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)
        quiet: NDArray[Any] = xp.where(xp.isnan(values), np.uint32(0x7FC00000), rounded)
        return (quiet >> 16).astype(np.uint16)

    def decode(self, message: NDArray[Any], out: Floats) -> None:
        out.view(np.uint32)[...] = message.astype(np.uint32) << 16


Wire = Float32 | Float16 | BFloat16
WIRES: Registry[type[Wire]] = Registry("gradient precision", SolverError)
for _wire in (Float32, Float16, BFloat16):
    WIRES.register(_wire.name)(_wire)
