"""Batch normalisation, alone or with a sum, and a ReLU in one go, on layouts N [C/b] S [b].

Channels are taken in groups small enough to stay in a cache, so that memory is read once although
statistics, or the sums that gradients need, come before the values. A task takes one sample's block
of channels. Blocks are multiples of WHOLE. `tables`, `rules` and `room` are those of norms.py, of
one norm; `blocks` of channels are taken at a time by all threads together, or if that is 0, threads
take a block each, with all samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inlined, kernel, part
from ..instructions import at, finish_streams, goes_past, min
from ..tasks import in_parallel
from .norms import (
    OWN,
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
from .sweeps import WHOLE, sweep

# What is done with every pixel; see Body in sweeps.py.


def _total_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    return [], [at.plus(sums[0], read[0])]


def _moments_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    return [], with_moments(at, read[0], tables[0], sums)


def _normal_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    return [rectified(at, normal(at, read[0], tables), slope)], []


def _normal_sum_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    x, addend = read
    return [rectified(at, at.plus(normal(at, x, tables), addend), slope)], []


def _gradient_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    x, dy = read
    return [], with_gradient(at, x, through_relu(at, x, dy, tables, slope), tables[0], sums)


def _sum_gradient_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    x, y, *parts = read
    total = parts[0]
    for more in parts[1:]:
        total = at.plus(total, more)
    g = at.where_positive(y, total, at.times(total, slope))
    return [g], with_gradient(at, x, g, tables[0], sums)


def _input_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    x, dy = read
    return [before_norm(at, x, through_relu(at, x, dy, tables, slope), tables)], []


def _sum_input_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    x, g = read
    return [before_norm(at, x, g, tables)], []


_total_of, _moments_of = sweep(_total_body, 1, WHOLE), sweep(_moments_body, 1, WHOLE)
_normal, _normal_sum = sweep(_normal_body, 1, WHOLE), sweep(_normal_sum_body, 2, WHOLE)
_gradient, _input = sweep(_gradient_body, 2, WHOLE), sweep(_input_body, 2, WHOLE)
_sum_gradient = sweep(_sum_gradient_body, 3, WHOLE)
_sum_gradient_of_two = sweep(_sum_gradient_body, 4, WHOLE)
_sum_input = sweep(_sum_input_body, 2, WHOLE)


@inlined
def _place(task: int, x: Any, first: int, width: int) -> Any:
    """Pixels and channels of a task's block, and where numbers of those channels begin: by sample,
    and in tables."""
    _, outer, pixels, b = x.shape
    row = (first + task % width) * b
    return pixels, b, task // width * outer * b + row, row


@part
def _moments(task: int, x: Any, first: int, width: int, room: Any) -> None:
    """The mean of each channel of a sample, and sums of distances from it and of their squares."""
    pixels, b, sample, _ = _place(task, x, first, width)
    none, apart = np.float32(0), room.shape[1]
    for lane in range(0, b, WHOLE):
        place, to = sample * pixels + lane, sample + lane
        mean = at(room, 2 * apart + to)
        _total_of((x,), place, pixels, b, (), 0, (mean,), 0, none, False)
        for j in range(WHOLE):
            mean[j] /= np.float32(pixels)
        sums = (at(room, to), at(room, apart + to))
        _moments_of((x,), place, pixels, b, (mean,), 0, sums, 0, none, False)


@inlined
def _know(x: Any, first: int, width: int, tables: Any, rules: Any, room: Any) -> None:
    """What there is to know of the channels of a group before they are normalised."""
    if rules[0, OWN] != 0:
        in_parallel(x.shape[0] * width, _moments, (x, first, width, room))
    for block in range(first, first + width):
        know(x, 0, block, tables, rules, room)


@part
def _know_block(block: int, x: Any, tables: Any, rules: Any, room: Any) -> None:
    """The same of one block, by one thread."""
    if rules[0, OWN] != 0:
        for n in range(x.shape[0]):
            _moments(n, x, block, 1, room)
    know(x, 0, block, tables, rules, room)


@part
def _normalise(
    task: int, x: Any, addend: Any, y: Any, first: int, width: int, tables: Any, rules: Any
) -> None:
    pixels, b, sample, row = _place(task, x, first, width)
    slope, past = np.float32(rules[0, SLOPE]), goes_past(y)
    for lane in range(0, b, WHOLE):
        place, numbers = sample * pixels + lane, known(tables, 0, row + lane)
        if addend.size:
            _normal_sum((x, addend, y), place, pixels, b, numbers, 0, (), 0, slope, past)
        else:
            _normal((x, y), place, pixels, b, numbers, 0, (), 0, slope, past)
    finish_streams()


@part
def _forward_block(
    block: int, x: Any, addend: Any, y: Any, tables: Any, rules: Any, room: Any
) -> None:
    _know_block(block, x, tables, rules, room)
    for n in range(x.shape[0]):
        _normalise(n, x, addend, y, block, 1, tables, rules)


@kernel(f"{'f4[:,:,:,::1], ' * 3}{TABLES}, i8")
def forward(
    x: Any, addend: Any, y: Any, tables: Any, rules: Any, room: Any, blocks: int
) -> None:  # fmt: skip
    """y = relu(normal x + addend), which may be empty."""
    num, outer, _, _ = x.shape
    if blocks == 0:
        in_parallel(outer, _forward_block, (x, addend, y, tables, rules, room))
        return
    for first in range(0, outer, blocks):
        width = min(blocks, outer - first)
        _know(x, first, width, tables, rules, room)
        in_parallel(num * width, _normalise, (x, addend, y, first, width, tables, rules))


@part
def _sum_gradients(
    task: int, x: Any, dy: Any, first: int, width: int, tables: Any, rules: Any, room: Any
) -> None:
    pixels, b, sample, row = _place(task, x, first, width)
    slope = np.float32(rules[0, SLOPE])
    for lane in range(0, b, WHOLE):
        place, numbers = sample * pixels + lane, known(tables, 0, row + lane)
        sums = (at(room, sample + lane), at(room, room.shape[1] + sample + lane))
        _gradient((x, dy), place, pixels, b, numbers, 0, sums, 0, slope, False)


@part
def _input_gradient(
    task: int, x: Any, dy: Any, dx: Any, first: int, width: int, tables: Any, rules: Any
) -> None:
    pixels, b, sample, row = _place(task, x, first, width)
    slope = np.float32(rules[0, SLOPE])
    for lane in range(0, b, WHOLE):
        numbers = known(tables, 0, row + lane) + learnt(tables, 0, row + lane)
        _input((x, dy, dx), sample * pixels + lane, pixels, b, numbers, 0, (), 0, slope, False)


@part
def _backward_block(
    block: int, x: Any, dy: Any, dx: Any, tables: Any, rules: Any, room: Any
) -> None:  # fmt: skip
    for n in range(x.shape[0]):
        _sum_gradients(n, x, dy, block, 1, tables, rules, room)
    learn(x, 0, block, tables, rules, room)
    for n in range(x.shape[0] if dx.size else 0):
        _input_gradient(n, x, dy, dx, block, 1, tables, rules)


@kernel(f"{'f4[:,:,:,::1], ' * 3}{TABLES}, i8")
def backward(x: Any, dy: Any, dx: Any, tables: Any, rules: Any, room: Any, blocks: int) -> None:
    """dx from dy, which it may be; empty if nobody wants it. Tables receive the SUM of gradients
    behind the ReLU, and of their PRODUCT with (x - mean)."""
    num, outer, _, _ = x.shape
    if blocks == 0:
        in_parallel(outer, _backward_block, (x, dy, dx, tables, rules, room))
        return
    for first in range(0, outer, blocks):
        width = min(blocks, outer - first)
        in_parallel(num * width, _sum_gradients, (x, dy, first, width, tables, rules, room))
        for block in range(first, first + width):
            learn(x, 0, block, tables, rules, room)
        if dx.size:
            in_parallel(num * width, _input_gradient, (x, dy, dx, first, width, tables, rules))


@part
def _add_gradients(
    task: int, x: Any, y: Any, one: Any, other: Any, g: Any, first: int, width: int, tables: Any,
    rules: Any, room: Any,
) -> None:  # fmt: skip
    pixels, b, sample, row = _place(task, x, first, width)
    slope = np.float32(rules[0, SLOPE])
    for lane in range(0, b, WHOLE):
        place, numbers = sample * pixels + lane, known(tables, 0, row + lane)
        sums = (at(room, sample + lane), at(room, room.shape[1] + sample + lane))
        if other.size:
            _sum_gradient_of_two(
                (x, y, one, other, g), place, pixels, b, numbers, 0, sums, 0, slope, False
            )
        else:
            _sum_gradient((x, y, one, g), place, pixels, b, numbers, 0, sums, 0, slope, False)


@part
def _sum_input_gradient(
    task: int, x: Any, g: Any, dx: Any, first: int, width: int, tables: Any
) -> None:  # fmt: skip
    pixels, b, sample, row = _place(task, x, first, width)
    none = np.float32(0)
    for lane in range(0, b, WHOLE):
        numbers = known(tables, 0, row + lane) + learnt(tables, 0, row + lane)
        _sum_input((x, g, dx), sample * pixels + lane, pixels, b, numbers, 0, (), 0, none, False)


@part
def _sum_backward_block(
    block: int, x: Any, y: Any, one: Any, other: Any, g: Any, dx: Any, tables: Any, rules: Any,
    room: Any,
) -> None:  # fmt: skip
    for n in range(x.shape[0]):
        _add_gradients(n, x, y, one, other, g, block, 1, tables, rules, room)
    learn(x, 0, block, tables, rules, room)
    for n in range(x.shape[0] if dx.size else 0):
        _sum_input_gradient(n, x, g, dx, block, 1, tables)


@kernel(f"{'f4[:,:,:,::1], ' * 6}{TABLES}, i8")
def sum_backward(
    x: Any, y: Any, one: Any, other: Any, g: Any, dx: Any, tables: Any, rules: Any, room: Any,
    blocks: int,
) -> None:  # fmt: skip
    """g = (one + other) * relu'(y), and dx = g's gradient through the normalisation.

    `other` and `dx` may be empty: then there is nothing to add, or nobody wants dx. g may be `one`,
    and dx may be `other`. Tables receive the SUM of g, and of its PRODUCT with (x - mean).
    """
    num, outer, _, _ = x.shape
    if blocks == 0:
        in_parallel(outer, _sum_backward_block, (x, y, one, other, g, dx, tables, rules, room))
        return
    for first in range(0, outer, blocks):
        width = min(blocks, outer - first)
        in_parallel(
            num * width, _add_gradients,
            (x, y, one, other, g, first, width, tables, rules, room),
        )  # fmt: skip
        for block in range(first, first + width):
            learn(x, 0, block, tables, rules, room)
        if dx.size:
            in_parallel(num * width, _sum_input_gradient, (x, g, dx, first, width, tables))
