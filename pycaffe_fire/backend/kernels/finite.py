"""Is every number of an array finite?"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import fast_kernel, fast_part
from ..instructions import at, max, view
from ..tasks import in_parallel

_WITHOUT_SIGN, _INFINITY = np.int32(0x7FFFFFFF), np.int32(0x7F800000)  # bits of float32


@fast_part
def _largest(task: int, values: Any, parts: int, largest: Any) -> None:
    first, stop = values.size * task // parts, values.size * (task + 1) // parts
    bits, found = view(at(values, first), np.int32), np.int32(0)
    for i in range(stop - first):
        found = max(found, np.int32(bits[i] & _WITHOUT_SIGN))
    largest[task] = found


@fast_kernel("f4[::1], i4[::1]")
def largest_bits(values: Any, largest: Any) -> None:
    """largest[i] = the bits of the number furthest from 0 in part i; infinity and NaN lie beyond
    all others. As integers, because compilers take x * 0 for 0 in fast loops."""
    in_parallel(largest.size, _largest, (values, largest.size, largest))


def all_finite(values: Any, parts: int) -> bool:
    """Is none of these numbers infinite or NaN? One pass, at the speed of memory."""
    largest = np.empty(parts, np.int32)
    largest_bits(values, largest)
    return bool(largest.max() < _INFINITY)
