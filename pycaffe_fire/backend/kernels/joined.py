"""Samples side by side in a larger array, and the way back, with the gradient of a ReLU.

A part (samples, numbers) lies in the whole (samples, more numbers) from some place on. Numbers and
places are multiples of WHOLE.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import kernel, part
from ..instructions import at, finish_streams, goes_past, min
from ..tasks import in_parallel
from .sweeps import WHOLE, sweep

PIECE = 2**14  # numbers of a task

# What is done with every vector; see Body in sweeps.py.


def _copy_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    return read, []


def rectified_body(at: Any, read: Any, tables: Any, sums: Any, slope: Any) -> Any:
    gradient, value = read  # infinity times 0 is NaN, as in Caffe
    return [at.where_positive(value, gradient, at.times(gradient, at.zero))], []


_copy, _rectify = sweep(_copy_body, 1, WHOLE), sweep(rectified_body, 2, WHOLE)


@part
def _put(task: int, some: Any, whole: Any, place: int, pieces: int) -> None:
    sample, first = task // pieces, task % pieces * PIECE
    source = at(some, sample * some.shape[1] + first)
    target = at(whole, sample * whole.shape[1] + place + first)
    vectors = min(PIECE, some.shape[1] - first) // WHOLE
    past = goes_past(whole)
    _copy((source, target), 0, vectors, WHOLE, (), 0, (), 0, np.float32(0), past)
    finish_streams()


@kernel("f4[:,::1], f4[:,::1], i8")
def put(some: Any, whole: Any, place: int) -> None:
    """whole[:, place : place + numbers] = part."""
    pieces = (some.shape[1] + PIECE - 1) // PIECE
    in_parallel(some.shape[0] * pieces, _put, (some, whole, place, pieces))


@part
def _take(task: int, whole: Any, place: int, some: Any, values: Any, pieces: int) -> None:
    sample, first = task // pieces, task % pieces * PIECE
    here, none = sample * some.shape[1] + first, np.float32(0)
    source, target = at(whole, sample * whole.shape[1] + place + first), at(some, here)
    vectors = min(PIECE, some.shape[1] - first) // WHOLE
    if values.size:
        streams = (source, at(values, here), target)
        _rectify(streams, 0, vectors, WHOLE, (), 0, (), 0, none, False)
    else:
        _copy((source, target), 0, vectors, WHOLE, (), 0, (), 0, none, False)


@kernel("f4[:,::1], i8, f4[:,::1], f4[:,::1]")
def take(whole: Any, place: int, some: Any, values: Any) -> None:
    """The way back; with `values`, times 0 where they are not above 0, as in a ReLU."""
    pieces = (some.shape[1] + PIECE - 1) // PIECE
    in_parallel(some.shape[0] * pieces, _take, (whole, place, some, values, pieces))
