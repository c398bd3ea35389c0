"""Fast update rules over flat buffers: regularise, advance the history and write the weights in one pass.

A flat buffer is cut into blocks that never cross two parameters, so that each block has one rate
and one decay; blocks run side by side and every element is computed alone, so bits do not depend
on the number of threads. Loops run over slices from 0 on: that is what the compiler vectorises.
"""  # noqa: E501

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inlined, jit, parallel_jit, prange

BLOCK = 16384


@inlined
def _regularised(g: Any, w: Any, scale: Any, l2: Any, l1: Any) -> Any:
    """The gradient after scaling and weight decay, of which one kind is 0."""
    sign = np.float32(w > 0) - np.float32(w < 0)
    return g * scale + l2 * w + l1 * sign


@parallel_jit
def sgd(w: Any, g: Any, h: Any, starts: Any, stops: Any, rates: Any, l2: Any, l1: Any,
        scale: Any, momentum: Any) -> None:  # fmt: skip
    """h = momentum h + rate g; w -= h"""
    for block in prange(starts.size):
        place = slice(starts[block], stops[block])
        ws, gs, hs = w[place], g[place], h[place]
        rate, two, one = rates[block], l2[block], l1[block]
        for i in range(ws.size):
            v = momentum * hs[i] + rate * _regularised(gs[i], ws[i], scale, two, one)
            hs[i] = v
            ws[i] -= v


@parallel_jit
def nesterov(w: Any, g: Any, h: Any, starts: Any, stops: Any, rates: Any, l2: Any, l1: Any,
             scale: Any, momentum: Any) -> None:  # fmt: skip
    """v = momentum h + rate g; w -= (1 + momentum) v - momentum h; h = v"""
    for block in prange(starts.size):
        place = slice(starts[block], stops[block])
        ws, gs, hs = w[place], g[place], h[place]
        rate, two, one = rates[block], l2[block], l1[block]
        for i in range(ws.size):
            old = hs[i]
            v = momentum * old + rate * _regularised(gs[i], ws[i], scale, two, one)
            hs[i] = v
            ws[i] -= (np.float32(1) + momentum) * v - momentum * old


@parallel_jit
def adagrad(w: Any, g: Any, h: Any, starts: Any, stops: Any, rates: Any, l2: Any, l1: Any,
            scale: Any, delta: Any) -> None:  # fmt: skip
    """h += g^2; w -= rate g / (sqrt(h) + delta)"""
    for block in prange(starts.size):
        place = slice(starts[block], stops[block])
        ws, gs, hs = w[place], g[place], h[place]
        rate, two, one = rates[block], l2[block], l1[block]
        for i in range(ws.size):
            grad = _regularised(gs[i], ws[i], scale, two, one)
            hs[i] += grad * grad
            ws[i] -= rate * grad / (np.sqrt(hs[i]) + delta)


@parallel_jit
def rmsprop(w: Any, g: Any, h: Any, starts: Any, stops: Any, rates: Any, l2: Any, l1: Any,
            scale: Any, delta: Any, rms_decay: Any) -> None:  # fmt: skip
    """h = d h + (1 - d) g^2; w -= rate g / (sqrt(h) + delta)"""
    for block in prange(starts.size):
        place = slice(starts[block], stops[block])
        ws, gs, hs = w[place], g[place], h[place]
        rate, two, one = rates[block], l2[block], l1[block]
        for i in range(ws.size):
            grad = _regularised(gs[i], ws[i], scale, two, one)
            hs[i] = rms_decay * hs[i] + (np.float32(1) - rms_decay) * grad * grad
            ws[i] -= rate * grad / (np.sqrt(hs[i]) + delta)


@parallel_jit
def adadelta(w: Any, g: Any, h: Any, u: Any, starts: Any, stops: Any, rates: Any, l2: Any,
             l1: Any, scale: Any, delta: Any, momentum: Any) -> None:  # fmt: skip
    """h = m h + (1-m) g^2; v = g sqrt((u + delta)/(h + delta)); u = m u + (1-m) v^2; w -= rate v"""
    for block in prange(starts.size):
        place = slice(starts[block], stops[block])
        ws, gs, hs, us = w[place], g[place], h[place], u[place]
        rate, two, one = rates[block], l2[block], l1[block]
        for i in range(ws.size):
            grad = _regularised(gs[i], ws[i], scale, two, one)
            hs[i] = momentum * hs[i] + (np.float32(1) - momentum) * grad * grad
            v = grad * np.sqrt((us[i] + delta) / (hs[i] + delta))
            us[i] = momentum * us[i] + (np.float32(1) - momentum) * v * v
            ws[i] -= rate * v


@parallel_jit
def adam(w: Any, g: Any, m: Any, v: Any, starts: Any, stops: Any, rates: Any, l2: Any,
         l1: Any, scale: Any, beta1: Any, beta2: Any, correction: Any,
         delta: Any) -> None:  # fmt: skip
    """m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w -= rate correction m / (sqrt(v) + delta)"""
    for block in prange(starts.size):
        place = slice(starts[block], stops[block])
        ws, gs, ms, vs = w[place], g[place], m[place], v[place]
        rate, two, one = rates[block] * correction, l2[block], l1[block]
        for i in range(ws.size):
            grad = _regularised(gs[i], ws[i], scale, two, one)
            ms[i] = beta1 * ms[i] + (np.float32(1) - beta1) * grad
            vs[i] = beta2 * vs[i] + (np.float32(1) - beta2) * grad * grad
            ws[i] -= rate * ms[i] / (np.sqrt(vs[i]) + delta)


@parallel_jit
def adamw(w: Any, g: Any, m: Any, v: Any, starts: Any, stops: Any, rates: Any, l2: Any,
          l1: Any, scale: Any, beta1: Any, beta2: Any, correction: Any,
          delta: Any) -> None:  # fmt: skip
    """Adam without decay in m and v; w -= rate (correction m / (sqrt(v) + delta) + decay w)"""
    zero = np.float32(0)
    for block in prange(starts.size):
        place = slice(starts[block], stops[block])
        ws, gs, ms, vs = w[place], g[place], m[place], v[place]
        rate, two, one = rates[block], l2[block], l1[block]
        for i in range(ws.size):
            grad = gs[i] * scale
            ms[i] = beta1 * ms[i] + (np.float32(1) - beta1) * grad
            vs[i] = beta2 * vs[i] + (np.float32(1) - beta2) * grad * grad
            step = correction * ms[i] / (np.sqrt(vs[i]) + delta)
            ws[i] -= rate * (step + _regularised(zero, ws[i], scale, two, one))


RULES = {f.__name__: f for f in (sgd, nesterov, adagrad, rmsprop, adadelta, adam, adamw)}


@parallel_jit
def block_dots(a: Any, b: Any, starts: Any, stops: Any, sums: Any) -> None:
    """The inner product of each block of two flat buffers, in double precision."""
    for block in prange(starts.size):
        place = slice(starts[block], stops[block])
        ours, theirs = a[place], b[place]
        total = 0.0
        for i in range(ours.size):
            total += np.float64(ours[i]) * np.float64(theirs[i])
        sums[block] = total


@jit
def sums_in_order(sums: Any, firsts: Any, totals: Any) -> None:
    """totals[i] = the sum of sums[firsts[i]:firsts[i + 1]], from left to right"""
    for i in range(totals.size):
        total = 0.0
        for s in sums[firsts[i] : firsts[i + 1]]:
            total += s
        totals[i] = total


@parallel_jit
def block_squares(values: Any, starts: Any, stops: Any, sums: Any) -> None:
    """block_dots of a buffer with itself, which is read once."""
    for block in prange(starts.size):
        part = values[starts[block] : stops[block]]
        total = 0.0
        for i in range(part.size):
            total += np.float64(part[i]) * np.float64(part[i])
        sums[block] = total


def sum_of_squares(values: Any) -> float:
    """The sum of squares of a flat buffer; block by block, so threads do not change its bits."""
    starts = np.arange(0, values.size, BLOCK)
    sums, total = np.empty(starts.size, np.float64), np.empty(1, np.float64)
    block_squares(values, starts, np.minimum(starts + BLOCK, values.size), sums)
    sums_in_order(sums, np.array([0, starts.size]), total)
    return float(total[0])


@parallel_jit
def add_into(total: Any, part: Any) -> None:
    """total += part"""
    for block in prange((total.size + BLOCK - 1) // BLOCK):
        place = slice(block * BLOCK, min((block + 1) * BLOCK, total.size))
        ours, theirs = total[place], part[place]
        for i in range(ours.size):
            ours[i] += theirs[i]
