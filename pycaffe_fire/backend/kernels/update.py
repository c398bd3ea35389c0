"""Fast update rules over flat buffers: regularise, advance the history and write the weights in one pass.

A flat buffer is cut into blocks that never cross two parameters, so that each block has one rate
and one decay; blocks run side by side and every element is computed alone, so bits do not depend
on the number of threads. A rule gets weights, gradients and histories, the blocks (arrays of their
starts, stops, rates, and decays of both kinds), and numbers of which the first scales gradients.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ..compiled import fast_kernel, fast_part, inlined
from ..instructions import at, min
from ..tasks import in_parallel

F = TypeVar("F", bound=Callable[..., Any])

BLOCK = 16384


def _rule(histories: int, numbers: int) -> Callable[[F], F]:
    """Compile an update rule with so many histories and numbers."""
    blocks = "Tuple((i8[::1], i8[::1], f4[::1], f4[::1], f4[::1]))"
    return fast_kernel(f"{'f4[::1], ' * (2 + histories)}{blocks}, UniTuple(f4, {numbers})")


@inlined
def _regularised(g: Any, w: Any, scale: Any, l2: Any, l1: Any) -> Any:
    """The gradient after scaling and weight decay, of which one kind is 0."""
    sign = np.float32(w > 0) - np.float32(w < 0)
    return g * scale + l2 * w + l1 * sign


@inlined
def _block(blocks: Any, block: int) -> Any:
    """Where a block begins, how long it is, its rate and decays."""
    starts, stops, rates, l2, l1 = blocks
    start = starts[block]
    return start, stops[block] - start, rates[block], l2[block], l1[block]


@fast_part
def _sgd(block: int, w: Any, g: Any, h: Any, blocks: Any, numbers: Any) -> None:
    start, size, rate, two, one = _block(blocks, block)
    scale, momentum = numbers
    w, g, h = at(w, start), at(g, start), at(h, start)
    for i in range(size):
        v = momentum * h[i] + rate * _regularised(g[i], w[i], scale, two, one)
        h[i] = v
        w[i] -= v


@_rule(1, 2)
def sgd(w: Any, g: Any, h: Any, blocks: Any, numbers: Any) -> None:
    """h = momentum h + rate g; w -= h"""
    in_parallel(blocks[0].size, _sgd, (w, g, h, blocks, numbers))


@fast_part
def _nesterov(block: int, w: Any, g: Any, h: Any, blocks: Any, numbers: Any) -> None:
    start, size, rate, two, one = _block(blocks, block)
    scale, momentum = numbers
    w, g, h = at(w, start), at(g, start), at(h, start)
    for i in range(size):
        old = h[i]
        v = momentum * old + rate * _regularised(g[i], w[i], scale, two, one)
        h[i] = v
        w[i] -= (np.float32(1) + momentum) * v - momentum * old


@_rule(1, 2)
def nesterov(w: Any, g: Any, h: Any, blocks: Any, numbers: Any) -> None:
    """v = momentum h + rate g; w -= (1 + momentum) v - momentum h; h = v"""
    in_parallel(blocks[0].size, _nesterov, (w, g, h, blocks, numbers))


@fast_part
def _adagrad(block: int, w: Any, g: Any, h: Any, blocks: Any, numbers: Any) -> None:
    start, size, rate, two, one = _block(blocks, block)
    scale, delta = numbers
    w, g, h = at(w, start), at(g, start), at(h, start)
    for i in range(size):
        grad = _regularised(g[i], w[i], scale, two, one)
        h[i] += grad * grad
        w[i] -= rate * grad / (np.sqrt(h[i]) + delta)


@_rule(1, 2)
def adagrad(w: Any, g: Any, h: Any, blocks: Any, numbers: Any) -> None:
    """h += g^2; w -= rate g / (sqrt(h) + delta)"""
    in_parallel(blocks[0].size, _adagrad, (w, g, h, blocks, numbers))


@fast_part
def _rmsprop(block: int, w: Any, g: Any, h: Any, blocks: Any, numbers: Any) -> None:
    start, size, rate, two, one = _block(blocks, block)
    scale, delta, decay = numbers
    w, g, h = at(w, start), at(g, start), at(h, start)
    for i in range(size):
        grad = _regularised(g[i], w[i], scale, two, one)
        h[i] = decay * h[i] + (np.float32(1) - decay) * grad * grad
        w[i] -= rate * grad / (np.sqrt(h[i]) + delta)


@_rule(1, 3)
def rmsprop(w: Any, g: Any, h: Any, blocks: Any, numbers: Any) -> None:
    """h = d h + (1 - d) g^2; w -= rate g / (sqrt(h) + delta)"""
    in_parallel(blocks[0].size, _rmsprop, (w, g, h, blocks, numbers))


@fast_part
def _adadelta(block: int, w: Any, g: Any, h: Any, u: Any, blocks: Any, numbers: Any) -> None:
    start, size, rate, two, one = _block(blocks, block)
    scale, delta, momentum = numbers
    w, g, h, u = at(w, start), at(g, start), at(h, start), at(u, start)
    for i in range(size):
        grad = _regularised(g[i], w[i], scale, two, one)
        h[i] = momentum * h[i] + (np.float32(1) - momentum) * grad * grad
        v = grad * np.sqrt((u[i] + delta) / (h[i] + delta))
        u[i] = momentum * u[i] + (np.float32(1) - momentum) * v * v
        w[i] -= rate * v


@_rule(2, 3)
def adadelta(w: Any, g: Any, h: Any, u: Any, blocks: Any, numbers: Any) -> None:
    """h = m h + (1-m) g^2; v = g sqrt((u + delta)/(h + delta)); u = m u + (1-m) v^2; w -= rate v"""
    in_parallel(blocks[0].size, _adadelta, (w, g, h, u, blocks, numbers))


@fast_part
def _adam(block: int, w: Any, g: Any, m: Any, v: Any, blocks: Any, numbers: Any) -> None:
    start, size, rate, two, one = _block(blocks, block)
    scale, beta1, beta2, correction, delta = numbers
    rate *= correction
    w, g, m, v = at(w, start), at(g, start), at(m, start), at(v, start)
    for i in range(size):
        grad = _regularised(g[i], w[i], scale, two, one)
        m[i] = beta1 * m[i] + (np.float32(1) - beta1) * grad
        v[i] = beta2 * v[i] + (np.float32(1) - beta2) * grad * grad
        w[i] -= rate * m[i] / (np.sqrt(v[i]) + delta)


@_rule(2, 5)
def adam(w: Any, g: Any, m: Any, v: Any, blocks: Any, numbers: Any) -> None:
    """m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w -= rate correction m / (sqrt(v) + delta)"""
    in_parallel(blocks[0].size, _adam, (w, g, m, v, blocks, numbers))


@fast_part
def _adamw(block: int, w: Any, g: Any, m: Any, v: Any, blocks: Any, numbers: Any) -> None:
    start, size, rate, two, one = _block(blocks, block)
    scale, beta1, beta2, correction, delta = numbers
    w, g, m, v = at(w, start), at(g, start), at(m, start), at(v, start)
    for i in range(size):
        grad = g[i] * scale
        m[i] = beta1 * m[i] + (np.float32(1) - beta1) * grad
        v[i] = beta2 * v[i] + (np.float32(1) - beta2) * grad * grad
        step = correction * m[i] / (np.sqrt(v[i]) + delta)
        w[i] -= rate * (step + _regularised(np.float32(0), w[i], scale, two, one))


@_rule(2, 5)
def adamw(w: Any, g: Any, m: Any, v: Any, blocks: Any, numbers: Any) -> None:
    """Adam without decay in m and v; w -= rate (correction m / (sqrt(v) + delta) + decay w)"""
    in_parallel(blocks[0].size, _adamw, (w, g, m, v, blocks, numbers))


RULES = {f.__name__: f for f in (sgd, nesterov, adagrad, rmsprop, adadelta, adam, adamw)}


@fast_part
def _block_dots(block: int, a: Any, b: Any, starts: Any, stops: Any, sums: Any) -> None:
    start, total = starts[block], 0.0
    ours, theirs = at(a, start), at(b, start)
    for i in range(stops[block] - start):
        total += np.float64(ours[i]) * np.float64(theirs[i])
    sums[block] = total


@fast_kernel("f4[::1], f4[::1], i8[::1], i8[::1], f8[::1]")
def block_dots(a: Any, b: Any, starts: Any, stops: Any, sums: Any) -> None:
    """The inner product of each block of two flat buffers, or of one, in double precision."""
    in_parallel(starts.size, _block_dots, (a, b, starts, stops, sums))


def sum_in_order(sums: Any) -> Any:
    """From left to right, whatever the number of summands."""
    return np.cumsum(sums)[-1] if sums.size else 0.0


def sum_of_squares(values: Any) -> float:
    """The sum of squares of a flat buffer; block by block, so threads do not change its bits."""
    starts = np.arange(0, values.size, BLOCK)
    sums = np.empty(starts.size, np.float64)
    block_dots(values, values, starts, np.minimum(starts + BLOCK, values.size), sums)
    return float(sum_in_order(sums))


@fast_part
def _add_into(block: int, total: Any, part: Any) -> None:
    ours, theirs = at(total, block * BLOCK), at(part, block * BLOCK)
    for i in range(min(BLOCK, total.size - block * BLOCK)):
        ours[i] += theirs[i]


@fast_kernel("f4[::1], f4[::1]")
def add_into(total: Any, part: Any) -> None:
    """total += part"""
    in_parallel((total.size + BLOCK - 1) // BLOCK, _add_into, (total, part))
