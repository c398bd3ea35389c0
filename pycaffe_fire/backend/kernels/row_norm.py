"""Batch normalisation of rows (pixels of all samples, channels), some blocks of rows at a time.

Sums over a block are kept apart, so that they are the same for any number of threads. Channels are
a multiple of LANES. ReLU has a slope below 0, or 1 for none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inlined, jit
from ..instructions import at, max, min
from .sweeps import sweep
from .tiles import LANES

BLOCK = 1 << 15  # numbers of a block, few enough to stay in a cache

# What is done with every pixel; see Body in sweeps.py.


def _total_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    return [], [at.plus(sums[0], read[0])]


def _squares_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    off = at.minus(read[0], tables[0])
    return [], [at.plus(sums[0], at.times(off, off))]


def _normal_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    (x,), (mean, inverse, scale, shift) = read, tables
    normal = at.times(at.minus(x, mean), inverse)
    value = at.plus(at.times(normal, scale), shift)
    return [normal, at.where_positive(value, value, at.times(value, slope))], []


def _through_relu(at: Any, normal: Any, dy: Any, scale: Any, shift: Any, slope: Any) -> Any:
    value = at.plus(at.times(normal, scale), shift)
    return at.where_positive(value, dy, at.times(dy, slope))


def _sums_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    (normal, dy), (scale, shift) = read, tables
    g = _through_relu(at, normal, dy, scale, shift, slope)
    return [], [at.plus(sums[0], g), at.plus(sums[1], at.times(g, normal))]


def _input_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    (normal, dy), (scale, shift, factor, level, along) = read, tables
    g = _through_relu(at, normal, dy, scale, shift, slope)
    rest = at.minus(at.minus(g, level), at.times(normal, along))
    return [at.times(rest, factor)], []


_total_of, _squares_of = sweep(_total_body, 1), sweep(_squares_body, 1)
_normal, _sums, _input = sweep(_normal_body, 1), sweep(_sums_body, 2), sweep(_input_body, 2)


@inlined
def _rows(block: int, x: Any) -> Any:
    """The first row of a block, and how many it has."""
    count = max(1, BLOCK // x.shape[1])
    return block * count, min(count, x.shape[0] - block * count)


def rows_of_block(channels: int) -> int:
    """How many rows a block has, the last one at most."""
    return int(max(1, BLOCK // channels))


def blocks(rows: int, channels: int) -> int:
    """How many blocks there are."""
    return -(-rows // rows_of_block(channels))


@jit
def moments(x: Any, first: int, stop: int, means: Any, spreads: Any) -> None:
    """The mean of each channel of a block, and the sum of squared distances from it."""
    channels, none = x.shape[1], np.float32(0)
    for block in range(first, stop):
        row, count = _rows(block, x)
        for c in range(0, channels, LANES):
            place, to = row * channels + c, block * channels + c
            _total_of((x,), place, count, channels, (), 0, (means,), to, none, False)
            mean = at(means, to)
            for lane in range(LANES):
                mean[lane] /= np.float32(count)
            _squares_of((x,), place, count, channels, (means,), to, (spreads,), to, none, False)


@jit
def forward(x: Any, normal: Any, y: Any, first: int, stop: int, tables: Any, slope: Any) -> None:
    """normal = (x - mean) * inverse; y = relu(normal * scale + shift); these four are `tables`."""
    channels = x.shape[1]
    for block in range(first, stop):
        row, count = _rows(block, x)
        for c in range(0, channels, LANES):
            streams = (x, normal, y)
            _normal(streams, row * channels + c, count, channels, tables, c, (), 0, slope, False)


@jit
def gradient_sums(
    normal: Any, dy: Any, first: int, stop: int, tables: Any, sums: Any, crossed: Any, slope: Any
) -> None:
    """Of a block: those of g = dy * relu'(normal * scale + shift), and of g * normal."""
    channels = normal.shape[1]
    for block in range(first, stop):
        row, count = _rows(block, normal)
        for c in range(0, channels, LANES):
            place, to = row * channels + c, block * channels + c
            both = (sums, crossed)
            _sums((normal, dy), place, count, channels, tables, c, both, to, slope, False)


@jit
def backward(normal: Any, dy: Any, dx: Any, first: int, stop: int, tables: Any, slope: Any) -> None:
    """dx = (g - level - normal * along) * factor; `tables` are scale, shift, factor, level and
    along."""
    channels = normal.shape[1]
    for block in range(first, stop):
        row, count = _rows(block, normal)
        for c in range(0, channels, LANES):
            streams = (normal, dy, dx)
            _input(streams, row * channels + c, count, channels, tables, c, (), 0, slope, False)
