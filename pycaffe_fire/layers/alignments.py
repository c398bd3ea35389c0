"""Connectionist temporal classification: all ways in which labels fit a longer sequence.

Graves et al., 2006. Written for a whole batch at once; only time is a loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NEVER = -1e30  # the logarithm of 0, finite so that differences of it are numbers


class Sequences(NamedTuple):
    """A batch of label sequences: `labels` (N x L) of which `counts` (N) are there, for scores of
    which `lengths` (N) moments are there; all on the host."""

    labels: NDArray[np.int64]
    counts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def align(xp: Any, log_probs: Any, batch: Sequences, blank: int) -> tuple[Any, Any]:
    """(costs (N), expected (T x N x C)) of labels under log probabilities (T x N x C), in float64.

    A cost is -log of the summed probability of all alignments, infinite if there is none;
    `expected` is how probable each class is at each moment, given the labels.
    """
    times, _, classes = log_probs.shape
    states, exists, jumps = _states(batch, blank)
    spread = np.broadcast_to(states, (times, *states.shape))
    emitted = xp.take_along_axis(log_probs.astype(np.float64), xp.asarray(spread), axis=2)
    exists, jumps = xp.asarray(exists), xp.asarray(jumps)
    lives = xp.asarray(np.arange(times)[:, None] < batch.lengths)
    emitted = xp.where(exists, emitted, NEVER)
    forward = _forward(xp, emitted, jumps)
    backward = _backward(xp, emitted, jumps, lives, xp.asarray(_ends(batch, states.shape[1])))
    joint = forward + backward
    peak = joint[0].max(axis=1, keepdims=True)
    total = peak + xp.log(xp.exp(joint[0] - peak).sum(axis=1, keepdims=True))
    impossible = total <= NEVER / 2
    costs = xp.where(impossible[:, 0], np.inf, -total[:, 0])
    without_time = np.where(batch.counts == 0, 0, np.inf)  # nothing is said, for certain
    costs = xp.where(xp.asarray(batch.lengths == 0), xp.asarray(without_time), costs)
    shares = xp.where(lives[:, :, None] & ~impossible, xp.exp(joint - total), 0)
    of_class = xp.asarray((states[:, :, None] == np.arange(classes)).astype(np.float64))
    expected = xp.matmul(shares.transpose(1, 0, 2), of_class).transpose(1, 0, 2)
    return costs, expected


def _states(batch: Sequences, blank: int) -> tuple[Any, Any, Any]:
    """Labels with blanks around them (N x S), which of them exist, and which may be reached from
    two before, past a blank: a label that is not the one before it."""
    num, most = batch.labels.shape
    states = np.full((num, 2 * most + 1), blank)
    known = np.arange(most) < batch.counts[:, None]
    states[:, 1::2] = np.where(known, batch.labels, blank)
    exists = np.arange(2 * most + 1) < 2 * batch.counts[:, None] + 1
    jumps = np.zeros(states.shape, bool)
    jumps[:, 3::2] = states[:, 3::2] != states[:, 1:-2:2]
    return states, exists, jumps & exists


def _ends(batch: Sequences, states: int) -> Any:
    """0 at the two states in which a sequence may end: its last label and the blank after it."""
    place, last = np.arange(states), 2 * batch.counts[:, None]
    return np.where((place == last) | (place == last - 1), 0.0, NEVER)


def _shifted(xp: Any, values: Any, by: int) -> Any:
    """values[:, s - by] at s; NEVER where that is outside."""
    gap = xp.full((len(values), min(abs(by), values.shape[1])), NEVER)
    if by > 0:
        return xp.concatenate([gap, values[:, :-by]], axis=1)
    return xp.concatenate([values[:, -by:], gap], axis=1)


def _forward(xp: Any, emitted: Any, jumps: Any) -> Any:
    """The probability (as log) of being in each state at each moment with all that came before."""
    reached = xp.full(emitted.shape, NEVER)
    reached[0, :, :2] = emitted[0, :, :2]
    for time in range(1, len(emitted)):
        before = reached[time - 1]
        sums = xp.logaddexp(before, _shifted(xp, before, 1))
        sums = xp.logaddexp(sums, xp.where(jumps, _shifted(xp, before, 2), NEVER))
        reached[time] = xp.maximum(sums + emitted[time], NEVER)
    return reached


def _backward(xp: Any, emitted: Any, jumps: Any, lives: Any, ends: Any) -> Any:
    """The probability (as log) of all that comes after a moment from each state on."""
    ahead = xp.full(emitted.shape, NEVER)
    ahead[-1] = ends
    far = _shifted(xp, xp.where(jumps, 0.0, NEVER), -2)
    for time in range(len(emitted) - 2, -1, -1):
        after = ahead[time + 1] + emitted[time + 1]
        sums = xp.logaddexp(after, _shifted(xp, after, -1))
        sums = xp.logaddexp(sums, _shifted(xp, after, -2) + far)
        ahead[time] = xp.where(lives[time + 1][:, None], xp.maximum(sums, NEVER), ends)
    return ahead
