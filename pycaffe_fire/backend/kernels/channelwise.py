"""PReLU, and a factor and an offset per channel, on any layout of the family N [C/b] S [b].

A task takes one sample's block of channels as a run of pixels * b elements. The channels' numbers
are repeated to a pattern of some hundred elements, so that inner loops run over plain memory. They
write to a local piece first: input and output may be one array, and a compiler that must assume
so would not vectorise. Sums over a task are kept for each, and the caller adds them in order: the
same for any number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inlined, kernel, part
from ..instructions import at, empty, free, max, min, zeros
from ..tasks import in_parallel

PATTERN = 256  # elements, at least


@inlined
def _repeats(run: int, b: int) -> Any:
    """How often one block's numbers are repeated, for pieces of a run of `run` elements."""
    return max(1, min((PATTERN + b - 1) // b, run // b))


@inlined
def _fill(numbers: Any, b: int, repeats: int, pattern: Any) -> None:
    """One block's numbers over and over."""
    for r in range(repeats):
        for j in range(b):
            pattern[r * b + j] = numbers[j]


@inlined
def _gather(lanes: Any, repeats: int, b: int, sums: Any) -> None:
    """Add up what the repeats of a pattern have collected for each channel."""
    for j in range(b):
        total = np.float32(0)
        for r in range(repeats):
            total += lanes[r * b + j]
        sums[j] = total


@inlined
def _copy(source: Any, size: int, target: Any) -> None:
    for i in range(size):
        target[i] = source[i]


@part
def _prelu(task: int, x: Any, y: Any, kept: Any, slopes: Any) -> None:
    _, outer, pixels, b = x.shape
    run, place = pixels * b, task * pixels * b
    repeats = _repeats(run, b)
    size = repeats * b
    pattern, piece = empty(size, np.float32), empty(size, np.float32)
    _fill(at(slopes, task % outer * b), b, repeats, pattern)
    for start in range(0, run, size):
        count, source = min(size, run - start), at(x, place + start)
        if kept.size:
            _copy(source, count, at(kept, place + start))
        for i in range(count):
            value = source[i]
            scaled = pattern[i] * value
            piece[i] = value if value > 0 else scaled
        _copy(piece, count, at(y, place + start))
    free(pattern)
    free(piece)


@kernel("f4[:,:,:,::1], f4[:,:,:,::1], f4[:,:,:,::1], f4[:,::1]")
def prelu(x: Any, y: Any, kept: Any, slopes: Any) -> None:
    """y = x > 0 ? x : slope * x; `kept` receives a copy of x, unless it is empty."""
    in_parallel(x.shape[0] * x.shape[1], _prelu, (x, y, kept, slopes))


@part
def _prelu_backward(
    task: int, x: Any, dy: Any, dx: Any, slopes: Any, data: bool, sums: Any
) -> None:
    _, outer, pixels, b = x.shape
    run, place = pixels * b, task * pixels * b
    repeats = _repeats(run, b)
    size = repeats * b
    pattern, piece = empty(size, np.float32), empty(size, np.float32)
    lanes = zeros(size, np.float32)
    _fill(at(slopes, task % outer * b), b, repeats, pattern)
    for start in range(0, run, size):
        count, source, above = min(size, run - start), at(x, place + start), at(dy, place + start)
        for i in range(count):
            value, slope = source[i], above[i]
            scaled, product = pattern[i] * slope, value * slope
            piece[i] = scaled if value <= 0 else slope
            lanes[i] += product if value <= 0 else np.float32(0)
        if data:
            _copy(piece, count, at(dx, place + start))
    _gather(lanes, repeats, b, at(sums, task * b))
    free(pattern)
    free(piece)
    free(lanes)


@kernel("f4[:,:,:,::1], f4[:,:,:,::1], f4[:,:,:,::1], f4[:,::1], b1, f4[:,:,::1]")
def prelu_backward(x: Any, dy: Any, dx: Any, slopes: Any, data: bool, sums: Any) -> None:
    """dx, if wanted, and sums[n, o] = the slopes' gradient of one task."""
    in_parallel(x.shape[0] * x.shape[1], _prelu_backward, (x, dy, dx, slopes, data, sums))


@part
def _scale(task: int, x: Any, y: Any, kept: Any, factors: Any, offsets: Any) -> None:
    _, outer, pixels, b = x.shape
    run, place = pixels * b, task * pixels * b
    repeats = _repeats(run, b)
    size = repeats * b
    times, plus = empty(size, np.float32), empty(size, np.float32)
    piece = empty(size, np.float32)
    _fill(at(factors, task % outer * b), b, repeats, times)
    _fill(at(offsets, task % outer * b), b, repeats, plus)
    for start in range(0, run, size):
        count, source = min(size, run - start), at(x, place + start)
        if kept.size:
            _copy(source, count, at(kept, place + start))
        for i in range(count):
            piece[i] = source[i] * times[i] + plus[i]
        _copy(piece, count, at(y, place + start))
    free(times)
    free(plus)
    free(piece)


@kernel("f4[:,:,:,::1], f4[:,:,:,::1], f4[:,:,:,::1], f4[:,::1], f4[:,::1]")
def scale(x: Any, y: Any, kept: Any, factors: Any, offsets: Any) -> None:
    """y = x * factor + offset; `kept` receives a copy of x, unless it is empty."""
    in_parallel(x.shape[0] * x.shape[1], _scale, (x, y, kept, factors, offsets))


@part
def _scale_backward(
    task: int, x: Any, dy: Any, dx: Any, factors: Any, data: bool, products: Any, totals: Any
) -> None:
    _, outer, pixels, b = dy.shape
    run, place = pixels * b, task * pixels * b
    repeats = _repeats(run, b)
    size = repeats * b
    pattern, piece = empty(size, np.float32), empty(size, np.float32)
    first, second = zeros(size, np.float32), zeros(size, np.float32)
    _fill(at(factors, task % outer * b), b, repeats, pattern)
    for start in range(0, run, size):
        count, source, above = min(size, run - start), at(x, place + start), at(dy, place + start)
        if products.size:
            for i in range(count):
                first[i] += source[i] * above[i]
        if totals.size:
            for i in range(count):
                second[i] += above[i]
        if data:
            for i in range(count):
                piece[i] = above[i] * pattern[i]
            _copy(piece, count, at(dx, place + start))
    if products.size:
        _gather(first, repeats, b, at(products, task * b))
    if totals.size:
        _gather(second, repeats, b, at(totals, task * b))
    free(pattern)
    free(piece)
    free(first)
    free(second)


@kernel("f4[:,:,:,::1], f4[:,:,:,::1], f4[:,:,:,::1], f4[:,::1], b1, f4[:,:,::1], f4[:,:,::1]")
def scale_backward(
    x: Any, dy: Any, dx: Any, factors: Any, data: bool, products: Any, totals: Any
) -> None:
    """dx, if wanted; products[n, o] = sums of x * dy and totals[n, o] = sums of dy of one task,
    each unless it is empty."""  # fmt: skip
    arguments = x, dy, dx, factors, data, products, totals
    in_parallel(dy.shape[0] * dy.shape[1], _scale_backward, arguments)
