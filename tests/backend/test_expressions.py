"""Loops whose arithmetic writes its own instructions, against NumPy's arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import compiled
from pycaffe_fire.backend.expressions import floor, for_each, sqrt, where_any_bit
from pycaffe_fire.backend.instructions import at

pytestmark = pytest.mark.skipif(not compiled.available(), reason="there is no numba")

COUNT = 37


def floats_body(i: Any, x: Any, y: Any, factor: Any) -> tuple[Any, ...]:
    half = np.float32(0.5)
    return (
        x + y * factor, half - x, -(x / y), sqrt(x * x), floor(2 * y), (x + 1).astype(np.float64),
        i.astype(np.float32), x.astype(np.int32), x.view(np.uint32),
    )  # fmt: skip


def whole_body(i: Any, x: Any, y: Any, z: Any) -> tuple[Any, ...]:
    return (
        (x & 0xFF) | (y << 3), x ^ y, x >> np.uint64(5), 3 * y + x, x.astype(np.float64),
        x.astype(np.int32), z >> 2, -z, z.astype(np.int64), z.astype(np.float32),
        where_any_bit(z & 2, z, 1 - z),
    )  # fmt: skip


_floats, _whole = for_each(floats_body), for_each(whole_body)


@compiled.jit
def floats(x: Any, y: Any, factor: Any, out: Any) -> None:
    _floats(x.size, (x, y), out, (factor,))


@compiled.jit
def whole(x: Any, y: Any, z: Any, out: Any) -> None:
    _whole(x.size, (x, y, z), out, ())


def swapped(i: Any, first: Any, second: Any) -> tuple[Any, Any]:
    return second, first


_swapped = for_each(swapped, step=2)


@compiled.jit
def swap_pairs(x: Any) -> None:
    _swapped(x.size // 2, (x, at(x, 1)), (x, at(x, 1)), ())


def check(kernel: Callable[..., None], given: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    out = tuple(np.empty_like(each) for each in expected)
    kernel(*given, out)
    for k, (made, right) in enumerate(zip(out, expected, strict=True)):
        assert np.array_equal(made, right), k


def test_floats() -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal((2, COUNT)) * 9).astype(np.float32)
    factor = np.float32(1.5)
    check(
        floats, (x, y, factor),
        (
            x + y * factor, np.float32(0.5) - x, -(x / y), np.abs(x), np.floor(2 * y),
            (x + 1).astype(np.float64), np.arange(COUNT, dtype=np.float32), x.astype(np.int32),
            x.view(np.uint32),
        ),
    )  # fmt: skip


def test_whole_numbers() -> None:
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 2**64, (2, COUNT), np.uint64)
    z = rng.integers(-(2**31), 2**31, COUNT, np.int32)
    check(
        whole, (x, y, z),
        (
            (x & 0xFF) | (y << 3), x ^ y, x >> 5, 3 * y + x, x.astype(np.float64),
            x.astype(np.int32), z >> 2, -z, z.astype(np.int64), z.astype(np.float32),
            np.where(z & 2, z, 1 - z),
        ),
    )  # fmt: skip


def test_steps_and_reads_before_writes() -> None:
    x = np.arange(10.0)
    swap_pairs(x)
    assert x.tolist() == [1, 0, 3, 2, 5, 4, 7, 6, 9, 8]


def test_numbers_of_two_kinds_do_not_meet() -> None:
    mixed = for_each(lambda i, x: (x + i,))
    namespace = {"mixed": mixed}
    exec("def call(x):\n    mixed(x.size, (x,), (x,), ())", namespace)
    with pytest.raises(Exception, match="float64 meets int64"):
        compiled.jit(namespace["call"])(np.ones(3))
