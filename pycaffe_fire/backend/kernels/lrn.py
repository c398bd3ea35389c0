"""Local response normalisation, on any layout of the family N [C/b] S [b].

Backward recomputes the normaliser from the input instead of storing it: reading x and dy and
writing dx is cheaper than a third tensor.

Across channels a task takes some pixels of an image, with the blocks of b channels as rows of one
flat array. A channel's neighbour is then either near, in the same row, or far, in the row before
or after, so that all channels take one long loop without moving anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inlined, parallel_jit, part, prange

ROW = 512  # elements of a block per task: long enough to stream, and all rows fit in a cache
GUESS = np.int32(0x4F58CAC8)  # minus a quarter of the bits of s, this is nearly s^(-1/4)
TINY = np.float32(1e-30)


@part
def _powers(s: Any, minus_beta: Any, k: Any, alpha: Any, power: Any, inverse: Any) -> None:
    """power = s^minus_beta and inverse = 1 / s, for s = k + alpha * something not negative.

    The usual exponents come from s^(-1/4) by Newton's method: only multiplications, which is much
    faster than roots and divisions, but it has to start from a normal number.
    """
    usual = minus_beta == np.float32(-0.75) or minus_beta == np.float32(-0.5)
    if usual and k > TINY and alpha >= 0:
        cubed = minus_beta == np.float32(-0.75)
        bits, guess = s.view(np.int32), inverse.view(np.int32)
        for i in range(s.size):
            guess[i] = GUESS - (bits[i] >> 2)
        for i in range(s.size):
            r, quarter = inverse[i], np.float32(0.25) * s[i]
            r *= np.float32(1.25) - quarter * (r * r) * (r * r)
            r *= np.float32(1.25) - quarter * (r * r) * (r * r)
            r *= np.float32(1.25) - quarter * (r * r) * (r * r)
            power[i] = r * r * r if cubed else r * r
            inverse[i] = (r * r) * (r * r)
    else:
        for i in range(s.size):
            power[i] = s[i] ** minus_beta
            inverse[i] = np.float32(1) / s[i]


@inlined
def _shifted(rows: Any, start: int, size: int, by: int, b: int) -> Any:
    """Where channel c + by is: near for the first channels of a block, as many as the third value
    says, and far for the others."""
    near = start + by // b * ROW + by % b
    return rows[near : near + size], rows[near + ROW - b :][:size], b - by % b


@part
def _window(rows: Any, start: int, half: int, b: int, k: Any, alpha: Any, out: Any) -> None:
    """out = k + alpha * the sum over channels c - half .. c + half, of rows[start:].

    A window of 5, which most nets have, takes a single loop.
    """
    size, mask, here = out.size, b - 1, rows[start:]
    if half == 2:
        p, p_far, p_near = _shifted(rows, start, size, -2, b)
        q, q_far, q_near = _shifted(rows, start, size, -1, b)
        r, r_far, r_near = _shifted(rows, start, size, 1, b)
        s, s_far, s_near = _shifted(rows, start, size, 2, b)
        for i in range(size):
            c = i & mask
            p0, p1, q0, q1 = p[i], p_far[i], q[i], q_far[i]
            r0, r1, s0, s1 = r[i], r_far[i], s[i], s_far[i]
            below = (p0 if c < p_near else p1) + (q0 if c < q_near else q1)
            above = (r0 if c < r_near else r1) + (s0 if c < s_near else s1)
            out[i] = k + alpha * (here[i] + below + above)
    else:
        out[:] = here[:size]
        for by in range(-half, half + 1):
            if by:
                near, far, count = _shifted(rows, start, size, by, b)
                for i in range(size):
                    one, other = near[i], far[i]
                    out[i] += one if i & mask < count else other
        for i in range(size):
            out[i] = k + alpha * out[i]


@parallel_jit
def forward(x: Any, y: Any, b: int, size: int, alpha: Any, minus_beta: Any, k: Any) -> None:
    """y = x s^-beta with s = k + alpha * sum of squares around the channel; x is (N, C/b, S b)."""
    num, blocks, length = x.shape
    half = (size - 1) // 2
    start, used = (half // b + 1) * ROW + b, blocks * ROW  # zeros before the first and after
    parts = (length + ROW - 1) // ROW
    for task in prange(num * parts):
        n, first = task // parts, task % parts * ROW
        count = min(ROW, length - first)
        squares = np.zeros(2 * start + used, np.float32)
        s, power, inverse = (
            np.empty(used, np.float32), np.empty(used, np.float32), np.empty(used, np.float32),
        )  # fmt: skip
        for o in range(blocks):
            source, square = x[n, o, first : first + count], squares[start + o * ROW :]
            for i in range(count):
                square[i] = source[i] * source[i]
        _window(squares, start, half, b, k, alpha, s)
        _powers(s, minus_beta, k, alpha, power, inverse)
        for o in range(blocks):
            source, target = x[n, o, first : first + count], y[n, o, first : first + count]
            factor = power[o * ROW :]
            for i in range(count):
                target[i] = source[i] * factor[i]


@parallel_jit
def backward(x: Any, dy: Any, dx: Any, b: int, size: int, alpha: Any, minus_beta: Any,
             k: Any) -> None:  # fmt: skip
    """dx = dy s^-beta - 2 alpha beta x * sum around the channel of (dy x s^(-beta-1))."""
    num, blocks, length = x.shape
    half = (size - 1) // 2
    start, used = (half // b + 1) * ROW + b, blocks * ROW
    parts = (length + ROW - 1) // ROW
    cross = np.float32(2) * alpha * minus_beta
    for task in prange(num * parts):
        n, first = task // parts, task % parts * ROW
        count = min(ROW, length - first)
        rows = np.zeros(2 * start + used, np.float32)
        s, power, inverse = (
            np.empty(used, np.float32), np.empty(used, np.float32), np.empty(used, np.float32),
        )  # fmt: skip
        for o in range(blocks):
            source, square = x[n, o, first : first + count], rows[start + o * ROW :]
            for i in range(count):
                square[i] = source[i] * source[i]
        _window(rows, start, half, b, k, alpha, s)
        _powers(s, minus_beta, k, alpha, power, inverse)
        for o in range(blocks):
            source, above = x[n, o, first : first + count], dy[n, o, first : first + count]
            ratio, slope, factor = rows[start + o * ROW :], power[o * ROW :], inverse[o * ROW :]
            for i in range(count):
                g = above[i] * slope[i]
                slope[i] = g
                ratio[i] = g * source[i] * factor[i]
        _window(rows, start, half, b, np.float32(0), cross, s)
        for o in range(blocks):
            source, target = x[n, o, first : first + count], dx[n, o, first : first + count]
            slope, around = power[o * ROW :], s[o * ROW :]
            for i in range(count):
                target[i] = slope[i] + source[i] * around[i]


@inlined
def _box_sums(values: Any, rows: Any, out: Any, half: int, b: int) -> None:
    """out = values summed over squares of side 2 half + 1, cut off at the border; (h, w * b)."""
    height, length = values.shape
    for y in range(height):
        line, source = rows[y], values[y]
        line[:] = source
        for d in range(1, min(half, length // b - 1) + 1):
            left, right = line[d * b :], line[: length - d * b]
            before, after = source[: length - d * b], source[d * b :]
            for i in range(left.size):
                left[i] += before[i]
            for i in range(right.size):
                right[i] += after[i]
    for y in range(height):
        line = out[y]
        line[:] = rows[y]
        for d in range(1, half + 1):
            for near in (y - d, y + d):
                if 0 <= near < height:
                    other = rows[near]
                    for i in range(length):
                        line[i] += other[i]


@parallel_jit
def within_forward(x: Any, y: Any, b: int, size: int, alpha: Any, minus_beta: Any, k: Any) -> None:
    """y = x s^-beta with s = k + alpha * sum of squares around the pixel; (planes, h, w * b)."""
    planes, height, length = x.shape
    half = (size - 1) // 2
    for plane in prange(planes):
        squares = x[plane] * x[plane]
        rows, scale = np.empty_like(squares), np.empty_like(squares)
        _box_sums(squares, rows, scale, half, b)
        source, target = x[plane].reshape(-1), y[plane].reshape(-1)
        s = scale.reshape(-1)
        for i in range(s.size):
            s[i] = k + alpha * s[i]
        power, inverse = squares.reshape(-1), rows.reshape(-1)
        _powers(s, minus_beta, k, alpha, power, inverse)
        for i in range(s.size):
            target[i] = source[i] * power[i]


@parallel_jit
def within_backward(x: Any, dy: Any, dx: Any, b: int, size: int, alpha: Any, minus_beta: Any,
                    k: Any) -> None:  # fmt: skip
    """dx = dy s^-beta - 2 alpha beta x * sum around the pixel of (dy x s^(-beta-1))."""
    planes, height, length = x.shape
    half = (size - 1) // 2
    cross = np.float32(2) * alpha * minus_beta
    for plane in prange(planes):
        work = x[plane] * x[plane]
        rows, total = np.empty_like(work), np.empty_like(work)
        _box_sums(work, rows, total, half, b)
        v, g, out = x[plane].reshape(-1), dy[plane].reshape(-1), dx[plane].reshape(-1)
        s, ratio, slope = total.reshape(-1), work.reshape(-1), np.empty(v.size, np.float32)
        for i in range(s.size):
            s[i] = k + alpha * s[i]
        _powers(s, minus_beta, k, alpha, slope, ratio)
        for i in range(s.size):
            slope[i] *= g[i]
            ratio[i] *= slope[i] * v[i]
        _box_sums(work, rows, total, half, b)
        for i in range(s.size):
            out[i] = slope[i] + cross * v[i] * s[i]
