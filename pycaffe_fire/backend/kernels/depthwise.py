"""A 3x3 window over each channel, with a batch normalisation and a ReLU on both sides of it.

All of it is a matter of single channels. So blocks of channels are taken one by one, and most of
what is read again, since statistics come before values, twice, is still in a cache. Layouts are of
the family N [C/b] S [b]; samples are gone through row by row, and every second time from a thread's
last one to its first: the neighbours are in its cache even where that has no room for all. What is
summed is kept for each sample and added in order: the same for any number of threads, however they
share the work. Blocks are multiples of LANES. Windows are padded by 1.

The `tables`, `rules` and `room` of both norms are those of norms.py.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ..compiled import inlined, kernel, part
from ..instructions import at, clear, copy, free, min, zeros
from ..tasks import in_parallel, in_parallel_back
from .norms import (
    OWN,
    SAMPLED,
    SLOPE,
    TABLES,
    before_norm,
    know,
    known,
    learn,
    learnt,
    normal,
    rectified,
    through_relu,
    with_gradient,
    with_moments,
)
from .tiles import LANES
from .walks import walk

TAPS = 9  # of a window
AHEAD = 2**21  # numbers of a block, at most, that the cache takes beside the one before it

# What is done with every pixel; see Body in walks.py.


def _moments_body(at: Any, here: Any, tables: Any, taps: Any, sums: Any, slope: Any) -> Any:
    return with_moments(at, here[0].read(), tables[0], sums)


def _normal_body(at: Any, here: Any, tables: Any, taps: Any, sums: Any, slope: Any) -> Any:
    here[1].write(rectified(at, normal(at, here[0].read(), tables), slope))
    return []


def _line_body(at: Any, here: Any, tables: Any, taps: Any, sums: Any, slope: Any) -> Any:
    here[2].prefetch()
    return _normal_body(at, here, tables, taps, sums, slope)


def _window_body(at: Any, here: Any, tables: Any, taps: Any, sums: Any, slope: Any) -> Any:
    rows = []  # apart: a chain of nine would have to wait for each
    for line, (left, centre, right) in zip(here, (taps[:3], taps[3:6], taps[6:]), strict=False):
        total = at.plus(at.times(line.read(0), left), at.times(line.read(1), centre))
        rows.append(at.plus(total, at.times(line.read(2), right)))
    here[3].write(at.plus(at.plus(rows[0], rows[1]), rows[2]))
    return []


def _sums_body(at: Any, here: Any, tables: Any, taps: Any, sums: Any, slope: Any) -> Any:
    x = here[0].read()
    return with_gradient(at, x, through_relu(at, x, here[1].read(), tables, slope), tables[0], sums)


def _inner_body(at: Any, here: Any, tables: Any, taps: Any, sums: Any, slope: Any) -> Any:
    z = here[0].read()
    g = through_relu(at, z, here[1].read(), tables, slope)
    here[2].write(before_norm(at, z, g, tables))
    return []


def _copy_body(at: Any, here: Any, tables: Any, taps: Any, sums: Any, slope: Any) -> Any:
    here[1].write(here[0].read())
    return []


def _gradient_body(*pixels: Any) -> Any:
    """Of neighbouring pixels, each given as (line, column, tap) of all windows that saw it: lines
    of their gradients are the first three streams, then x and dx of each pixel follow.

    A tap's gradient is summed where its pixel is, not where its window is: it needs the same lines.
    """

    def body(at: Any, here: Any, tables: Any, taps: Any, sums: Any, slope: Any) -> Any:
        sums = list(sums)
        for k, meetings in enumerate(pixels):
            x, dx = here[3 + 2 * k : 5 + 2 * k]
            off = at.minus(x.read(), tables[0])
            normal = at.plus(at.times(off, tables[1]), tables[2])
            rise = at.where_positive(normal, at.one, slope)
            value = at.plus(at.times(normal, rise), at.zero)  # never -0
            found: dict[int, Any] = {}
            for line, column, tap in meetings:
                g = here[line].read(column)
                sums[2 + tap] = at.plus(sums[2 + tap], at.times(value, g))
                term = at.times(g, taps[tap])
                found[line] = at.plus(found[line], term) if line in found else term
            g = at.times(reduce(at.plus, found.values()), rise)
            dx.write(g)
            sums[0] = at.plus(sums[0], g)
            sums[1] = at.plus(sums[1], at.times(g, off))
        return sums

    return body


def _input_body(at: Any, here: Any, tables: Any, taps: Any, sums: Any, slope: Any) -> Any:
    here[1].write(before_norm(at, here[0].read(), here[1].read(), tables))
    return []


def _meetings(lines: Any, columns: Any) -> Any:
    """All pairs of a line and a column, given with their part of the tap."""
    return [(line, column, 3 * i + j) for line, i in lines for column, j in columns]


# Which windows, of those above, at and below a pixel, saw it with which row of taps; it is the same
# for columns. In steps of 2 even rows were only at a centre, odd ones at the edges of two windows.
ALL, EVEN, ODD = ((0, 2), (1, 1), (2, 0)), ((1, 1),), ((1, 2), (2, 0))


def _gradient_walk(lines: Any, *columns: Any) -> Any:
    return walk(_gradient_body(*(_meetings(lines, c) for c in columns)), TAPS, (2, TAPS))


_moments_row = walk(_moments_body, sums=(2,), at_once=4)
_normalise_row, _line_row = walk(_normal_body), walk(_line_body)
_window_row = walk(_window_body, TAPS)
_sums_of, _inner_row = walk(_sums_body, sums=(2,), at_once=2), walk(_inner_body)
_gradient_row, _copy_row = _gradient_walk(ALL, ALL), walk(_copy_body)
_even_pairs, _odd_pairs = _gradient_walk(EVEN, EVEN, ODD), _gradient_walk(ODD, EVEN, ODD)
_even_last, _odd_last = _gradient_walk(EVEN, EVEN), _gradient_walk(ODD, EVEN)
_input_row = walk(_input_body)


@inlined
def _sample_and_row(sample: int, block: int, outer: int, b: int) -> Any:
    """Where the numbers of its channels begin: by sample, and in tables."""
    return (sample * outer + block) * b, block * b


@inlined
def _clear(sums: Any, apart: int, count: int) -> None:
    for k in range(count):
        clear(at(sums, k * apart), LANES)


@part
def _moments_of(x: Any, place: int, pixels: int, b: int, room: Any, to: int) -> None:
    """Of LANES channels of a sample: sums of the distances from a number near to all pixels, and of
    their squares, and that number."""
    apart, none = room.shape[1], np.float32(0)
    sums, near, some = at(room, to), at(room, 2 * apart + to), min(pixels, SAMPLED)
    middle = at(x, place + (pixels - some) // 2 * b)
    copy(middle, near, LANES)
    _clear(sums, apart, 2)
    _moments_row((middle,), (b,), some, (near,), (), ((sums, apart),), none)
    for lane in range(LANES):
        near[lane] += sums[lane] / np.float32(some)
    _clear(sums, apart, 2)
    _moments_row((at(x, place),), (b,), pixels, (near,), (), ((sums, apart),), none)


@part
def _moments(n: int, x: Any, block: int, room: Any) -> None:
    _, outer, pixels, b = x.shape
    sample, _ = _sample_and_row(n, block, outer, b)
    for lane in range(0, b, LANES):
        _moments_of(x, sample * pixels + lane, pixels, b, room, sample + lane)


@inlined
def _line(row: int, height: int, size: int) -> int:
    """Where a row lies among the last three; those outside of the image are the fourth."""
    return 3 * size if row < 0 or row >= height else row % 3 * size


@part
def _convolve(
    n: int, x: Any, w: Any, z: Any, block: int, height: int, columns: int,
    stride: int, tables: Any, rules: Any, room: Any,
) -> None:  # fmt: skip
    """z = window over relu(normal x), and its moments.

    Meanwhile x of the next block is read into the cache: its moments wait for nothing else.
    """
    num, outer, pixels, b = x.shape
    made, none = z.shape[2], np.float32(0)
    rows, across = (height - 1) // stride + 1, (columns - 1) // stride + 1
    sample, row = _sample_and_row(n, block, outer, b)
    size, step = (columns + 2) * LANES, stride * LANES
    lines = zeros(4 * size, np.float32)
    ahead = pixels * b if block + 1 < outer and num * pixels * b <= AHEAD else 0
    for lane in range(0, b, LANES):
        numbers, taps = known(tables, 0, row + lane), at(w, row * TAPS + lane)
        source, target, ready = sample * pixels + lane, sample * made + lane, 0
        for r in range(rows):
            centre = r * stride
            while ready < min(centre + 2, height):
                place = source + ready * columns * b
                _line_row(
                    (at(x, place), at(lines, ready % 3 * size + LANES), at(x, place + ahead)),
                    (b, LANES, b), columns, numbers, (), (), np.float32(rules[0, SLOPE]),
                )  # fmt: skip
                ready += 1
            _window_row(
                (
                    at(lines, _line(centre - 1, height, size)),
                    at(lines, _line(centre, height, size)),
                    at(lines, _line(centre + 1, height, size)),
                    at(z, target + r * across * b),
                ),
                (step, step, step, b), across, (), (taps, b), (), none,
            )  # fmt: skip
        if rules[1, OWN] != 0:
            _moments_of(z, target, made, b, room, sample + lane)
    free(lines)


@part
def _normalise(
    n: int, z: Any, y: Any, block: int, tables: Any, rules: Any
) -> None:  # fmt: skip
    _, outer, pixels, b = z.shape
    sample, row = _sample_and_row(n, block, outer, b)
    for lane in range(0, b, LANES):
        source, target = at(z, sample * pixels + lane), at(y, sample * pixels + lane)
        _normalise_row(
            (source, target), (b, b), pixels, known(tables, 1, row + lane), (), (),
            np.float32(rules[1, SLOPE]),
        )  # fmt: skip


ARRAYS = "f4[:,:,:,::1]"


@part
def _forward_block(
    block: int, x: Any, w: Any, z: Any, y: Any, tables: Any, rules: Any, room: Any, height: int,
    columns: int, stride: int,
) -> None:  # fmt: skip
    num = x.shape[0]
    if rules[0, OWN] != 0:
        for n in range(num):
            _moments(n, x, block, room)
    know(x, 0, block, tables, rules, room)
    for n in range(num - 1, -1, -1):
        _convolve(n, x, w, z, block, height, columns, stride, tables, rules, room)
    know(z, 1, block, tables, rules, room)
    for n in range(num):
        _normalise(n, z, y, block, tables, rules)


@kernel(f"{ARRAYS}, f4[::1], {ARRAYS}, {ARRAYS}, {TABLES}, i8, i8, i8, b1")
def forward(
    x: Any, w: Any, z: Any, y: Any, tables: Any, rules: Any, room: Any, height: int, columns: int,
    stride: int, apart: bool,
) -> None:  # fmt: skip
    """z = window over relu(normal x), y = relu(normal z). Threads take blocks of channels `apart`,
    or samples of one block together."""
    num, outer, _, _ = x.shape
    if apart:
        geometry = (height, columns, stride)
        in_parallel(outer, _forward_block, (x, w, z, y, tables, rules, room, *geometry))
        return
    for block in range(outer):
        if rules[0, OWN] != 0:
            in_parallel(num, _moments, (x, block, room))
        know(x, 0, block, tables, rules, room)
        in_parallel_back(
            num, _convolve, (x, w, z, block, height, columns, stride, tables, rules, room)
        )
        know(z, 1, block, tables, rules, room)
        in_parallel(num, _normalise, (z, y, block, tables, rules))


@part
def _sum_gradients(n: int, z: Any, dy: Any, block: int, tables: Any, rules: Any, room: Any) -> None:
    _, outer, pixels, b = z.shape
    sample, row = _sample_and_row(n, block, outer, b)
    for lane in range(0, b, LANES):
        place, sums = sample * pixels + lane, at(room, sample + lane)
        _clear(sums, room.shape[1], 2)
        _sums_of(
            (at(z, place), at(dy, place)), (b, b), pixels, known(tables, 1, row + lane), (),
            ((sums, room.shape[1]),), np.float32(rules[1, SLOPE]),
        )  # fmt: skip


@part
def _gradients(
    n: int, x: Any, w: Any, z: Any, dy: Any, dx: Any, drafts: Any, block: int,
    height: int, columns: int, stride: int, tables: Any, rules: Any, room: Any, keep: bool,
) -> None:  # fmt: skip
    """The gradient of what the first norm gives, through its ReLU, into dx, and its sums; of taps.

    A window of rows goes down the gradient of z.
    """
    _, outer, pixels, b = x.shape
    made = z.shape[2]
    rows, across = (height - 1) // stride + 1, (columns - 1) // stride + 1
    sample, row = _sample_and_row(n, block, outer, b)
    size = (across + 2) * LANES
    lines = zeros(4 * size, np.float32)
    for lane in range(0, b, LANES):
        source, target, ready = sample * pixels + lane, sample * made + lane, 0
        inner = known(tables, 1, row + lane) + learnt(tables, 1, row + lane)
        sums, draft = at(room, sample + lane), at(drafts, sample * TAPS + lane)
        _clear(sums, room.shape[1], 2)
        _clear(draft, b, TAPS)
        for r in range(rows):
            while ready < min(r + 2, rows):
                place = target + ready * across * b
                g, to = at(dy, place), at(lines, ready % 3 * size + LANES)
                _inner_row(
                    (at(z, place), g, to), (b, b, LANES), across, inner, (), (),
                    np.float32(rules[1, SLOPE]),
                )  # fmt: skip
                if keep:
                    _copy_row((to, g), (LANES, b), across, (), (), (), np.float32(0))
                ready += 1
            place = source + r * stride * columns * b
            _row_gradients(
                at(x, place), at(dx, place), at(lines, _line(r - 1, rows, size)),
                at(lines, _line(r, rows, size)), at(lines, _line(r + 1, rows, size)), columns,
                stride, r * stride + 1 < height, b, known(tables, 0, row + lane),
                (at(w, row * TAPS + lane), b), ((sums, room.shape[1]), (draft, b)),
                np.float32(rules[0, SLOPE]),
            )  # fmt: skip
    free(lines)


@inlined
def _row_gradients(
    x: Any, dx: Any, above: Any, here: Any, below: Any, columns: int, stride: int, two: bool,
    b: int, known: Any, taps: Any, sums: Any, slope: Any,
) -> None:  # fmt: skip
    """Of the row of x at the centre of windows; in steps of 2 also of the next, if there are `two`.
    Pixels are taken in pairs then, and a last one alone."""
    if stride == 1:
        _gradient_row(
            (above, here, below, x, dx), (LANES, LANES, LANES, b, b), columns, known, taps, sums,
            slope,
        )  # fmt: skip
        return
    pairs, down = columns // 2, columns * b
    steps = (LANES, LANES, LANES, 2 * b, 2 * b, 2 * b, 2 * b)
    _even_pairs(
        (above, here, below, x, dx, at(x, b), at(dx, b)), steps, pairs, known, taps, sums, slope
    )
    if two:
        _odd_pairs(
            (above, here, below, at(x, down), at(dx, down), at(x, down + b), at(dx, down + b)),
            steps, pairs, known, taps, sums, slope,
        )  # fmt: skip
    if columns % 2 != 0:
        last, done = 2 * pairs * b, pairs * LANES
        lines = (at(above, done), at(here, done), at(below, done))
        _even_last((*lines, at(x, last), at(dx, last)), steps[:5], 1, known, taps, sums, slope)
        if two:
            last += down
            _odd_last((*lines, at(x, last), at(dx, last)), steps[:5], 1, known, taps, sums, slope)


@part
def _input_gradient(
    n: int, x: Any, dx: Any, block: int, tables: Any
) -> None:  # fmt: skip
    _, outer, pixels, b = x.shape
    sample, row = _sample_and_row(n, block, outer, b)
    for lane in range(0, b, LANES):
        source, target = at(x, sample * pixels + lane), at(dx, sample * pixels + lane)
        numbers = known(tables, 0, row + lane) + learnt(tables, 0, row + lane)
        _input_row((source, target), (b, b), pixels, numbers, (), (), np.float32(0))


@part
def _backward_block(
    block: int, x: Any, w: Any, z: Any, dy: Any, dx: Any, drafts: Any, tables: Any, rules: Any,
    room: Any, height: int, columns: int, stride: int, keep: bool,
) -> None:  # fmt: skip
    num = x.shape[0]
    for n in range(num):
        _sum_gradients(n, z, dy, block, tables, rules, room)
    learn(z, 1, block, tables, rules, room)
    for n in range(num - 1, -1, -1):
        _gradients(
            n, x, w, z, dy, dx, drafts, block, height, columns, stride, tables, rules, room, keep
        )
    learn(x, 0, block, tables, rules, room)
    for n in range(num):
        _input_gradient(n, x, dx, block, tables)


@kernel(
    f"{ARRAYS}, f4[::1], {ARRAYS}, {ARRAYS}, {ARRAYS}, f4[::1], f4[::1], {TABLES}, "
    "i8, i8, i8, b1, b1"
)
def backward(
    x: Any, w: Any, z: Any, dy: Any, dx: Any, dw: Any, drafts: Any, tables: Any, rules: Any,
    room: Any, height: int, columns: int, stride: int, apart: bool, keep: bool,
) -> None:  # fmt: skip
    """From dy, y's gradient, make x's dx and the window's dw; `drafts` is room for the dw of every
    sample. Tables receive the SUM of the gradients that come to a norm, and of their PRODUCT with
    (x - mean) or (z - mean). `keep`: write z's gradient over dy. `apart` as forward has it."""
    num, outer, _, b = x.shape
    geometry = (height, columns, stride)
    if apart:
        in_parallel(
            outer, _backward_block, (x, w, z, dy, dx, drafts, tables, rules, room, *geometry, keep)
        )
    for block in range(0 if apart else outer):
        in_parallel(num, _sum_gradients, (z, dy, block, tables, rules, room))
        learn(z, 1, block, tables, rules, room)
        in_parallel_back(
            num, _gradients,
            (x, w, z, dy, dx, drafts, block, *geometry, tables, rules, room, keep),
        )  # fmt: skip
        learn(x, 0, block, tables, rules, room)
        in_parallel(num, _input_gradient, (x, dx, block, tables))
    whole = outer * b * TAPS
    for k in range(whole):
        total = 0.0
        for n in range(num):
            total += drafts[n * whole + k]
        dw[k] = total
