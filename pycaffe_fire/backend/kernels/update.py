"""Update rules over flat buffers: regularise, advance the history and write the weights in one pass.

A flat buffer is cut into blocks that never cross two parameters, so that each block has one rate
and one decay; blocks run side by side and every element is computed alone, so bits do not depend
on the number of threads.
"""  # noqa: E501

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inlined, jit, parallel_jit, prange

BLOCK = 16384


@inlined
def _regularised(g: Any, w: Any, scale: Any, decay: Any, l1: Any) -> Any:
    """The gradient after scaling and weight decay."""
    if l1:
        return g * scale + decay * np.sign(w)
    return g * scale + decay * w


@parallel_jit
def sgd(w: Any, g: Any, h: Any, starts: Any, stops: Any, rates: Any, decays: Any, l1: Any,
        scale: Any, momentum: Any) -> None:  # fmt: skip
    """h = momentum h + rate g; w -= h"""
    for block in prange(starts.size):
        rate, decay = rates[block], decays[block]
        for i in range(starts[block], stops[block]):
            v = momentum * h[i] + rate * _regularised(g[i], w[i], scale, decay, l1)
            h[i] = v
            w[i] -= v


@parallel_jit
def nesterov(w: Any, g: Any, h: Any, starts: Any, stops: Any, rates: Any, decays: Any, l1: Any,
             scale: Any, momentum: Any) -> None:  # fmt: skip
    """v = momentum h + rate g; w -= (1 + momentum) v - momentum h; h = v"""
    for block in prange(starts.size):
        rate, decay = rates[block], decays[block]
        for i in range(starts[block], stops[block]):
            old = h[i]
            v = momentum * old + rate * _regularised(g[i], w[i], scale, decay, l1)
            h[i] = v
            w[i] -= (np.float32(1) + momentum) * v - momentum * old


@parallel_jit
def adagrad(w: Any, g: Any, h: Any, starts: Any, stops: Any, rates: Any, decays: Any, l1: Any,
            scale: Any, delta: Any) -> None:  # fmt: skip
    """h += g^2; w -= rate g / (sqrt(h) + delta)"""
    for block in prange(starts.size):
        rate, decay = rates[block], decays[block]
        for i in range(starts[block], stops[block]):
            grad = _regularised(g[i], w[i], scale, decay, l1)
            h[i] += grad * grad
            w[i] -= rate * grad / (np.sqrt(h[i]) + delta)


@parallel_jit
def rmsprop(w: Any, g: Any, h: Any, starts: Any, stops: Any, rates: Any, decays: Any, l1: Any,
            scale: Any, delta: Any, rms_decay: Any) -> None:  # fmt: skip
    """h = d h + (1 - d) g^2; w -= rate g / (sqrt(h) + delta)"""
    for block in prange(starts.size):
        rate, decay = rates[block], decays[block]
        for i in range(starts[block], stops[block]):
            grad = _regularised(g[i], w[i], scale, decay, l1)
            h[i] = rms_decay * h[i] + (np.float32(1) - rms_decay) * grad * grad
            w[i] -= rate * grad / (np.sqrt(h[i]) + delta)


@parallel_jit
def adadelta(w: Any, g: Any, h: Any, u: Any, starts: Any, stops: Any, rates: Any, decays: Any,
             l1: Any, scale: Any, delta: Any, momentum: Any) -> None:  # fmt: skip
    """h = m h + (1-m) g^2; v = g sqrt((u + delta)/(h + delta)); u = m u + (1-m) v^2; w -= rate v"""
    for block in prange(starts.size):
        rate, decay = rates[block], decays[block]
        for i in range(starts[block], stops[block]):
            grad = _regularised(g[i], w[i], scale, decay, l1)
            h[i] = momentum * h[i] + (np.float32(1) - momentum) * grad * grad
            v = grad * np.sqrt((u[i] + delta) / (h[i] + delta))
            u[i] = momentum * u[i] + (np.float32(1) - momentum) * v * v
            w[i] -= rate * v


@parallel_jit
def adam(w: Any, g: Any, m: Any, v: Any, starts: Any, stops: Any, rates: Any, decays: Any,
         l1: Any, scale: Any, beta1: Any, beta2: Any, correction: Any,
         delta: Any) -> None:  # fmt: skip
    """m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w -= rate correction m / (sqrt(v) + delta)"""
    for block in prange(starts.size):
        rate, decay = rates[block] * correction, decays[block]
        for i in range(starts[block], stops[block]):
            grad = _regularised(g[i], w[i], scale, decay, l1)
            m[i] = beta1 * m[i] + (np.float32(1) - beta1) * grad
            v[i] = beta2 * v[i] + (np.float32(1) - beta2) * grad * grad
            w[i] -= rate * m[i] / (np.sqrt(v[i]) + delta)


@parallel_jit
def _block_squares(values: Any, sums: Any) -> None:
    for block in prange(sums.size):
        total = 0.0
        for i in range(block * BLOCK, min((block + 1) * BLOCK, values.size)):
            total += np.float64(values[i]) * np.float64(values[i])
        sums[block] = total


@jit
def _in_order(sums: Any) -> Any:
    total = 0.0
    for s in sums:
        total += s
    return total


def sum_of_squares(values: Any) -> float:
    """The sum of squares of a flat buffer; block by block, so threads do not change its bits."""
    sums = np.zeros((values.size + BLOCK - 1) // BLOCK, np.float64)
    _block_squares(values, sums)
    return float(_in_order(sums))


@parallel_jit
def add_into(total: Any, part: Any) -> None:
    """total += part"""
    for block in prange((total.size + BLOCK - 1) // BLOCK):
        for i in range(block * BLOCK, min((block + 1) * BLOCK, total.size)):
            total[i] += part[i]
