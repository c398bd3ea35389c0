"""What kernels of batch normalisation have in common.

`tables` (norms, one number of each kind below, channels) hold what is known of channels, also of
the padding, whose scale is 0; `rules` (norms, EPS OWN SLOPE) how they are normalised: by their own
statistics or by given ones, and the ReLU's slope below 0, or 1 for none; `room` (3, samples *
channels) is for sums of every sample: added in order, they are the same for any number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inlined, part
from ..instructions import at, max

MEAN, VARIANCE, SCALE, SHIFT, FACTOR, ALONG, LEVEL, BACK, SUM, PRODUCT = range(10)
KINDS = 10  # of tables
EPS, OWN, SLOPE = range(3)
TABLES = "f4[:,:,::1], f8[:,::1], f4[:,::1]"  # the types of tables, rules and room
SAMPLED = 16  # pixels whose mean is near that of all


# What is done with a pixel, for the bodies of sweeps and walks. Tables of vectors are in the order
# of `known` and `learnt`.


def with_moments(at: Any, x: Any, near: Any, sums: Any) -> Any:
    """Sums of distances and of their squares, with one more."""
    off = at.minus(x, near)
    return [at.plus(sums[0], off), at.plus(sums[1], at.times(off, off))]


def normal(at: Any, x: Any, tables: Any) -> Any:
    return at.plus(at.times(at.minus(x, tables[0]), tables[1]), tables[2])


def rectified(at: Any, value: Any, slope: Any) -> Any:
    low = at.plus(at.times(value, slope), at.zero)  # never -0
    return at.where_positive(value, value, low)


def through_relu(at: Any, x: Any, dy: Any, tables: Any, slope: Any) -> Any:
    return at.where_positive(normal(at, x, tables), dy, at.times(dy, slope))


def with_gradient(at: Any, x: Any, g: Any, mean: Any, sums: Any) -> Any:
    """Sums of g and of g * (x - mean), with one more."""
    return [at.plus(sums[0], g), at.plus(sums[1], at.times(g, at.minus(x, mean)))]


def before_norm(at: Any, x: Any, g: Any, tables: Any) -> Any:
    """The gradient of x where that of a normal x is g."""
    mean, _, _, along, level, back = tables
    return at.plus(at.times(g, back), at.plus(at.times(at.minus(x, mean), along), level))


# What is done with channels.


@inlined
def known(tables: Any, norm: int, row: int) -> Any:
    """What makes a value normal: mean, factor and shift."""
    channels = tables.shape[2]
    place = norm * KINDS * channels + row
    return (
        at(tables, place + MEAN * channels),
        at(tables, place + FACTOR * channels),
        at(tables, place + SHIFT * channels),
    )


@inlined
def learnt(tables: Any, norm: int, row: int) -> Any:
    """What gradients need besides: along, level and the factor of gradients.

    That is FACTOR unless the caller has changed the scale since the forward pass.
    """
    channels = tables.shape[2]
    place = norm * KINDS * channels + row
    return (
        at(tables, place + ALONG * channels),
        at(tables, place + LEVEL * channels),
        at(tables, place + BACK * channels),
    )


@inlined
def _factor(scale: Any, spread: Any) -> Any:
    return scale / np.sqrt(spread) if scale != 0 else np.float32(0)


@part
def know(x: Any, norm: int, block: int, tables: Any, rules: Any, room: Any) -> None:
    """Mean, variance and factor of a block's channels, as given or from what is summed of every
    sample: distances from a number near to all pixels, their squares, and that number."""
    num, _, pixels, b = x.shape
    channels = tables.shape[2]
    for c in range(block * b, (block + 1) * b):
        if rules[norm, OWN] != 0:
            total, spread = 0.0, 0.0
            for n in range(num):
                place = n * channels + c
                total += room[2, place] + room[0, place] / pixels
            centre = total / num
            for n in range(num):
                place = n * channels + c
                mean = room[0, place] / pixels
                off = room[2, place] + mean - centre
                spread += max(room[1, place] - pixels * mean * mean, 0.0)
                spread += pixels * off * off
            tables[norm, MEAN, c], tables[norm, VARIANCE, c] = centre, spread / (num * pixels)
        tables[norm, FACTOR, c] = _factor(
            tables[norm, SCALE, c], tables[norm, VARIANCE, c] + rules[norm, EPS]
        )


@part
def learn(x: Any, norm: int, block: int, tables: Any, rules: Any, room: Any) -> None:
    """Sums over all samples, and what a batch's own statistics add to gradients: along * (x - mean)
    + level."""
    num, _, pixels, b = x.shape
    channels, count = tables.shape[2], num * pixels
    for c in range(block * b, (block + 1) * b):
        total, product = 0.0, 0.0
        for n in range(num):
            total += room[0, n * channels + c]
            product += room[1, n * channels + c]
        tables[norm, SUM, c], tables[norm, PRODUCT, c] = total, product
        spread = tables[norm, VARIANCE, c] + rules[norm, EPS]
        tables[norm, BACK, c] = _factor(tables[norm, SCALE, c], spread)
        factor = tables[norm, BACK, c]
        moves = rules[norm, OWN] != 0 and factor != 0
        tables[norm, LEVEL, c] = -factor * total / count if moves else np.float32(0)
        tables[norm, ALONG, c] = -factor * product / count / spread if moves else np.float32(0)
