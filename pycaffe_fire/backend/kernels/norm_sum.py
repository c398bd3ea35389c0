"""Batch normalisation, a sum and a ReLU in one go, on layouts of the family N [C/b] S [b].

Channels are taken in groups small enough to stay in a cache, so that memory is read once although
statistics, or the sums that gradients need, come before the values. A task takes one sample's block
of channels; what it sums is kept for each sample and added in order: the same for any number of
threads. Blocks are multiples of WHOLE.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inlined, kernel, part
from ..instructions import at, goes_past, min
from ..tasks import in_parallel
from .sweeps import WHOLE, sweep

# What is done with every pixel; see Body in sweeps.py.


def total_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    return [], [at.plus(sums[0], read[0])]


def squares_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    off = at.minus(read[0], tables[0])
    return [], [at.plus(sums[0], at.times(off, off))]


def _normal_sum_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    (x, addend), (mean, factor, shift) = read, tables
    normal = at.plus(at.times(at.minus(x, mean), factor), shift)
    value = at.plus(normal, addend)
    low = at.plus(at.times(value, slope), at.zero)  # never -0
    return [at.where_positive(value, value, low)], []


def _gradient_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    x, y, *parts = read
    total = parts[0]
    for more in parts[1:]:
        total = at.plus(total, more)
    g = at.where_positive(y, total, at.times(total, slope))
    product = at.times(g, at.minus(x, tables[0]))
    return [g], [at.plus(sums[0], g), at.plus(sums[1], product)]


def _input_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    (x, g), (mean, factor, along, level) = read, tables
    drift = at.plus(at.times(at.minus(x, mean), along), level)
    return [at.plus(at.times(g, factor), drift)], []


_total_of, _squares_of = sweep(total_body, 1, WHOLE), sweep(squares_body, 1, WHOLE)
_normal_sum = sweep(_normal_sum_body, 2, WHOLE)
_gradient, _gradient_of_two = sweep(_gradient_body, 3, WHOLE), sweep(_gradient_body, 4, WHOLE)
_input = sweep(_input_body, 2, WHOLE)


@inlined
def _sample_and_row(task: int, first: int, width: int, outer: int, b: int) -> Any:
    """Where the numbers of a task's channels begin: by sample, and in tables."""
    row = (first + task % width) * b
    return task // width * outer * b + row, row


@part
def _moments(task: int, x: Any, first: int, width: int, means: Any, squares: Any) -> None:
    """The mean of each channel of a sample, and the sum of squared distances from it."""
    _, outer, pixels, b = x.shape
    sample, _ = _sample_and_row(task, first, width, outer, b)
    none = np.float32(0)
    for lane in range(sample, sample + b, WHOLE):
        place = sample * pixels + lane - sample
        _total_of((x,), place, pixels, b, (), 0, (means,), lane, none, False)
        mean = at(means, lane)
        for j in range(WHOLE):
            mean[j] /= np.float32(pixels)
        _squares_of((x,), place, pixels, b, (means,), lane, (squares,), lane, none, False)


@part
def _normalise(
    task: int, x: Any, addend: Any, y: Any, first: int, width: int, mean: Any, factors: Any,
    shift: Any, slope: Any,
) -> None:  # fmt: skip
    _, outer, pixels, b = x.shape
    sample, row = _sample_and_row(task, first, width, outer, b)
    for lane in range(0, b, WHOLE):
        place = sample * pixels + lane
        _normal_sum(
            (x, addend, y), place, pixels, b, (mean, factors, shift), row + lane, (), 0, slope,
            goes_past(y),
        )


@kernel(f"{'f4[:,:,:,::1], ' * 3}{'f4[::1], ' * 7}f8, f4, i8, b1")
def forward(
    x: Any, addend: Any, y: Any, mean: Any, variance: Any, scale: Any, shift: Any, factors: Any,
    means: Any, squares: Any, eps: float, slope: Any, blocks: int, own: bool,
) -> None:  # fmt: skip
    """y = relu((x - mean) * factor + shift + addend), factor = scale / sqrt(variance + eps).

    Tables hold a number for each channel, also of the padding; `means` and `squares` are room for
    those of every sample; `blocks` of channels are taken at a time. `own`: mean and variance are
    those of x, and are written; else they are given. ReLU has this slope below 0, or 1 for none.
    """
    num, outer, pixels, b = x.shape
    channels = outer * b
    for first in range(0, outer, blocks):
        width = min(blocks, outer - first)
        if own:
            in_parallel(num * width, _moments, (x, first, width, means, squares))
        for c in range(first * b, (first + width) * b):
            if own:
                total, spread = 0.0, 0.0
                for n in range(num):
                    total += means[n * channels + c]
                centre = total / num
                for n in range(num):
                    off = means[n * channels + c] - centre
                    spread += squares[n * channels + c] + pixels * off * off
                mean[c], variance[c] = centre, spread / (num * pixels)
            # Channels of the padding have a scale of 0.
            factors[c] = scale[c] / np.sqrt(variance[c] + eps) if scale[c] != 0 else np.float32(0)
        in_parallel(
            num * width, _normalise, (x, addend, y, first, width, mean, factors, shift, slope)
        )


@part
def _sum_gradients(
    task: int, x: Any, y: Any, one: Any, other: Any, g: Any, first: int, width: int, mean: Any,
    totals: Any, products: Any, slope: Any,
) -> None:  # fmt: skip
    _, outer, pixels, b = x.shape
    sample, row = _sample_and_row(task, first, width, outer, b)
    sums = (totals, products)
    for lane in range(0, b, WHOLE):
        place, to = sample * pixels + lane, sample + lane
        if other.size:
            _gradient_of_two(
                (x, y, one, other, g), place, pixels, b, (mean,), row + lane, sums, to, slope, False
            )
        else:
            _gradient(
                (x, y, one, g), place, pixels, b, (mean,), row + lane, sums, to, slope, False
            )


@part
def _input_gradient(
    task: int, x: Any, g: Any, dx: Any, first: int, width: int, mean: Any, factors: Any,
    along: Any, level: Any,
) -> None:  # fmt: skip
    _, outer, pixels, b = x.shape
    sample, row = _sample_and_row(task, first, width, outer, b)
    tables = (mean, factors, along, level)
    for lane in range(0, b, WHOLE):
        place = sample * pixels + lane
        _input(
            (x, g, dx), place, pixels, b, tables, row + lane, (), 0, np.float32(0), goes_past(dx)
        )


@kernel(f"{'f4[:,:,:,::1], ' * 6}{'f4[::1], ' * 9}f8, f4, i8, b1")
def backward(
    x: Any, y: Any, one: Any, other: Any, g: Any, dx: Any, mean: Any, variance: Any, factors: Any,
    totals: Any, products: Any, sums: Any, crossed: Any, along: Any, level: Any, eps: float,
    slope: Any, blocks: int, own: bool,
) -> None:  # fmt: skip
    """g = (one + other) * relu'(y), and dx = g's gradient through the normalisation.

    `other` and `dx` may be empty: then there is nothing to add, or nobody wants dx. g may be `one`,
    and dx may be `other`. `totals` and `products` are room for the sums of every sample; `sums`
    receives those of g, `crossed` those of g * (x - mean). What the batch's statistics, if they are
    its `own`, add to dx is along * (x - mean) + level; else these are 0.
    """
    num, outer, pixels, b = x.shape
    channels, count = outer * b, num * pixels
    for first in range(0, outer, blocks):
        width = min(blocks, outer - first)
        in_parallel(
            num * width, _sum_gradients,
            (x, y, one, other, g, first, width, mean, totals, products, slope),
        )  # fmt: skip
        for c in range(first * b, (first + width) * b):
            total, product = 0.0, 0.0
            for n in range(num):
                total += totals[n * channels + c]
                product += products[n * channels + c]
            sums[c], crossed[c] = total, product
            moves = own and factors[c] != 0
            level[c] = -factors[c] * total / count if moves else np.float32(0)
            drift = -factors[c] * product / count
            along[c] = drift / (variance[c] + eps) if moves else np.float32(0)
        if dx.size:
            in_parallel(
                num * width, _input_gradient,
                (x, g, dx, first, width, mean, factors, along, level),
            )  # fmt: skip
