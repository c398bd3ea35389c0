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

from ..compiled import fast_kernel, fast_part
from ..instructions import at, copy, empty, free, min, view, zeros
from ..tasks import in_parallel

ROW = 512  # elements of a block per task: long enough to stream, and all rows fit in a cache
GUESS = np.int32(0x4F58CAC8)  # minus a quarter of the bits of s, this is nearly s^(-1/4)
TINY = np.float32(1e-30)


@fast_part
def powers(
    s: Any, size: int, minus_beta: Any, k: Any, alpha: Any, power: Any, inverse: Any
) -> None:
    """power = s^minus_beta and inverse = 1 / s, for s = k + alpha * something not negative.

    The usual exponents come from s^(-1/4) by Newton's method: only multiplications, which is much
    faster than roots and divisions, but it has to start from a normal number.
    """
    usual = minus_beta == np.float32(-0.75) or minus_beta == np.float32(-0.5)
    if usual and k > TINY and alpha >= 0:
        cubed = minus_beta == np.float32(-0.75)
        for i in range(size):
            bits = view(s[i], np.int32)
            r = view(np.int32(GUESS - (bits >> np.int32(2))), np.float32)
            quarter = np.float32(0.25) * s[i]
            r *= np.float32(1.25) - quarter * (r * r) * (r * r)
            r *= np.float32(1.25) - quarter * (r * r) * (r * r)
            r *= np.float32(1.25) - quarter * (r * r) * (r * r)
            power[i] = r * r * r if cubed else r * r
            inverse[i] = (r * r) * (r * r)
    else:
        for i in range(size):
            power[i] = s[i] ** minus_beta
            inverse[i] = np.float32(1) / s[i]


@fast_part
def _window(rows: Any, size: int, half: int, b: int, k: Any, alpha: Any, out: Any) -> None:
    """out = k + alpha * the sum of rows over channels c - half .. c + half; b is a power of two.

    Channel c + by has number `place` = by mod b in a block if c has number 0; so it is near, in the
    row that many blocks away, for the first b - place channels, and far, `jump` further on, for the
    others. A window of 5, which most nets have, takes a single loop.
    """
    mask, jump, rise = b - 1, ROW - b, ROW // b
    if half == 2:
        p_place, r_place, s_place = -2 & mask, 1 & mask, 2 & mask
        p, q = at(rows, (-2 - p_place) * rise + p_place), at(rows, mask - ROW)
        r, s = at(rows, (1 - r_place) * rise + r_place), at(rows, (2 - s_place) * rise + s_place)
        p_far, q_far, r_far, s_far = at(p, jump), at(q, jump), at(r, jump), at(s, jump)
        p_near, r_near, s_near = b - p_place, b - r_place, b - s_place
        for i in range(size):
            c = i & mask
            p0, p1, q0, q1 = p[i], p_far[i], q[i], q_far[i]
            r0, r1, s0, s1 = r[i], r_far[i], s[i], s_far[i]
            below = (p0 if c < p_near else p1) + (q0 if c < 1 else q1)
            above = (r0 if c < r_near else r1) + (s0 if c < s_near else s1)
            out[i] = k + alpha * (rows[i] + below + above)
    else:
        copy(rows, out, size)
        for by in range(-half, half + 1):
            if by:
                place = by & mask
                near, count = at(rows, (by - place) * rise + place), b - place
                far = at(near, jump)
                for i in range(size):
                    one, other = near[i], far[i]
                    out[i] += one if i & mask < count else other
        for i in range(size):
            out[i] = k + alpha * out[i]


@fast_part
def _across(
    task: int, x: Any, dy: Any, out: Any, b: int, size: int, alpha: Any, minus_beta: Any, k: Any,
    back: bool,
) -> None:  # fmt: skip
    _, blocks, length = x.shape
    parts, half, used = (length + ROW - 1) // ROW, (size - 1) // 2, blocks * ROW
    first = task % parts * ROW
    count, begin = min(ROW, length - first), task // parts * blocks * length + first
    source, above, target = at(x, begin), at(dy, begin), at(out, begin)
    start = (half // b + 1) * ROW + b  # zeros before the first block and after the last
    rows, s = zeros(2 * start + used, np.float32), empty(3 * used, np.float32)
    middle, power, inverse = at(rows, start), at(s, used), at(s, 2 * used)
    for o in range(blocks):
        line, square = at(source, o * length), at(middle, o * ROW)
        for i in range(count):
            square[i] = line[i] * line[i]
    _window(middle, used, half, b, k, alpha, s)
    powers(s, used, minus_beta, k, alpha, power, inverse)
    for o in range(blocks):
        line, slope, kept = at(source, o * length), at(above, o * length), at(power, o * ROW)
        factor, ratio, result = at(inverse, o * ROW), at(middle, o * ROW), at(target, o * length)
        if back:
            for i in range(count):
                g = slope[i] * kept[i]
                kept[i] = g
                ratio[i] = g * line[i] * factor[i]
        else:
            for i in range(count):
                result[i] = slope[i] * kept[i]
    if back:
        _window(middle, used, half, b, np.float32(0), np.float32(2) * alpha * minus_beta, s)
        for o in range(blocks):
            line, result = at(source, o * length), at(target, o * length)
            kept, around = at(power, o * ROW), at(s, o * ROW)
            for i in range(count):
                result[i] = kept[i] + line[i] * around[i]
    free(rows)
    free(s)


@fast_kernel("f4[:,:,::1], f4[:,:,::1], f4[:,:,::1], b1, i8, i8, f4, f4, f4")
def across(x: Any, dy: Any, out: Any, back: bool, b: int, size: int, alpha: Any,
           minus_beta: Any, k: Any) -> None:  # fmt: skip
    """out = dy s^-beta, and on the way `back` minus 2 alpha beta x times the sum around the channel
    of dy x s^(-beta-1), where s = k + alpha * the sum of x^2 around it; arrays are (N, C/b, S b).

    With dy = x the first is the way there. Both ways in one: most of it takes half the time to
    compile.
    """
    tasks = x.shape[0] * ((x.shape[2] + ROW - 1) // ROW)
    in_parallel(tasks, _across, (x, dy, out, b, size, alpha, minus_beta, k, back))


@fast_part
def _add(source: Any, size: int, target: Any) -> None:
    for i in range(size):
        target[i] += source[i]


@fast_part
def _box_sums(
    values: Any, rows: Any, out: Any, height: int, length: int, half: int, b: int
) -> None:
    """out = values summed over squares of side 2 half + 1, cut off at the border; (h, w * b)."""
    copy(values, rows, height * length)
    for y in range(height):
        line, source = at(rows, y * length), at(values, y * length)
        for d in range(1, min(half, length // b - 1) + 1):
            _add(source, length - d * b, at(line, d * b))
            _add(at(source, d * b), length - d * b, line)
    copy(rows, out, height * length)
    for y in range(height):
        for d in range(1, half + 1):
            if y - d >= 0:
                _add(at(rows, (y - d) * length), length, at(out, y * length))
            if y + d < height:
                _add(at(rows, (y + d) * length), length, at(out, y * length))


@fast_part
def _within(
    plane: int, x: Any, dy: Any, out: Any, b: int, size: int, alpha: Any, minus_beta: Any, k: Any,
    back: bool,
) -> None:  # fmt: skip
    _, height, length = x.shape
    count, half = height * length, (size - 1) // 2
    source, above, target = at(x, plane * count), at(dy, plane * count), at(out, plane * count)
    work = empty(4 * count, np.float32)
    ratio, rows, s, slope = work, at(work, count), at(work, 2 * count), at(work, 3 * count)
    for i in range(count):
        ratio[i] = source[i] * source[i]
    _box_sums(ratio, rows, s, height, length, half, b)
    for i in range(count):
        s[i] = k + alpha * s[i]
    powers(s, count, minus_beta, k, alpha, slope, ratio)
    if back:
        for i in range(count):
            slope[i] *= above[i]
            ratio[i] *= slope[i] * source[i]
        _box_sums(ratio, rows, s, height, length, half, b)
        cross = np.float32(2) * alpha * minus_beta
        for i in range(count):
            target[i] = slope[i] + cross * source[i] * s[i]
    else:
        for i in range(count):
            target[i] = above[i] * slope[i]
    free(work)


@fast_kernel("f4[:,:,::1], f4[:,:,::1], f4[:,:,::1], b1, i8, i8, f4, f4, f4")
def within(x: Any, dy: Any, out: Any, back: bool, b: int, size: int, alpha: Any,
           minus_beta: Any, k: Any) -> None:  # fmt: skip
    """The same with sums around the pixel; arrays are (planes, h, w * b)."""
    in_parallel(x.shape[0], _within, (x, dy, out, b, size, alpha, minus_beta, k, back))
