"""Compiling kernels: when they are needed, beside the main thread, which answers signals."""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pycaffe_fire.backend import compiled
from pycaffe_fire.backend.instructions import at, empty, free, max, min, view, zeros
from pycaffe_fire.backend.kernel_cache import fingerprint
from pycaffe_fire.backend.tasks import in_parallel, in_parallel_back

needs_numba = pytest.mark.skipif(not compiled.available(), reason="there is no numba")

FACTOR = 3


def half_of(number: float) -> float:
    return number / 2


def broken(number: float) -> float:
    return number + "a"  # type: ignore[operator]


@compiled.inlined
def _times(number: Any) -> Any:
    return number * FACTOR


@compiled.part
def _share(task: int, numbers: Any, out: Any) -> None:
    line = at(out, 2 * task)
    for i in range(2):
        line[i] = _times(numbers[task]) + i


@compiled.jit
def shares(numbers: Any, out: Any) -> None:
    in_parallel(numbers.size, _share, (numbers, out))


@compiled.part
def _note(task: int, out: Any, done: Any) -> None:
    out[task] += 1 + done[0]
    done[0] += 1


@compiled.jit
def order_back(out: Any, done: Any) -> None:
    in_parallel_back(out.size, _note, (out, done))


@compiled.jit
def shares_back(numbers: Any, out: Any) -> None:
    in_parallel_back(numbers.size, _share, (numbers, out))


@compiled.jit
def outlives(count: int, out: Any) -> None:
    """`first` is named before `second` is made, and its numbers are read after it."""
    first = empty(count, np.int64)
    line = at(first, 0)
    for i in range(count):
        line[i] = i
    second = zeros(count, np.int64)
    for i in range(count):
        out[i] = line[i] + second[i]
    free(second)
    free(first)


@compiled.jit
def extremes(a: Any, b: Any) -> Any:
    return min(a, b), max(a, b)


@compiled.jit
def bits_of(number: Any) -> Any:
    return view(number, np.int32), view(view(number, np.int32), np.float32)


@pytest.fixture
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    numba = compiled.numba()
    njit = numba.njit
    monkeypatch.setattr(numba, "njit", lambda cache=False, **options: njit(**options))


@pytest.fixture
def _interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@needs_numba
@pytest.mark.usefixtures("_no_cache", "_interruptible")
def test_an_interrupt_ends_the_wait_and_not_the_compiler() -> None:
    """What a handler raises in the compiler may be lost, or leave a kernel half-made."""
    interrupted = threading.Event()
    went_on: list[bool] = []

    def tell(done: int, seconds: float) -> None:
        if not went_on:
            os.kill(os.getpid(), signal.SIGINT)  # as a terminal does, to no thread in particular
            went_on.append(interrupted.wait(60))

    half = compiled.jit(half_of)
    with compiled.on_compiling(tell):
        with pytest.raises(KeyboardInterrupt):
            half(3.0)
        assert compiled.compiling()
        interrupted.set()
        assert half(3.0) == 1.5
    assert went_on == [True]


@needs_numba
@pytest.mark.usefixtures("_no_cache")
def test_an_error_of_the_compiler_arrives_at_the_caller() -> None:
    with pytest.raises(compiled.numba().core.errors.TypingError, match="number"):
        compiled.jit(broken)(1.0)


@needs_numba
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_every_task_runs_once_on_any_number_of_threads(threads: int, count: int) -> None:
    numbers, out = np.arange(count), np.zeros(2 * count, np.int64)
    compiled.use_threads(threads)
    shares(numbers, out)
    assert np.array_equal(out, (3 * numbers[:, None] + np.arange(2)).reshape(-1))


@needs_numba
def test_memory_lives_until_it_is_freed() -> None:
    """A pointer into an array does not keep it alive for numba by itself."""
    out = np.zeros(5000, np.int64)
    outlives(out.size, out)
    assert np.array_equal(out, np.arange(out.size))


@needs_numba
@pytest.mark.parametrize("a", [-1.5, 2.0, np.nan])
@pytest.mark.parametrize("b", [0.0, 2.0, np.nan])
def test_extremes_are_those_of_python(a: float, b: float) -> None:
    assert np.array_equal(extremes(a, b), (builtins.min(a, b), builtins.max(a, b)), equal_nan=True)
    assert extremes(-3, 2) == (-3, 2)


@needs_numba
def test_a_view_has_the_same_bits() -> None:
    number = np.float32(-0.3)
    assert bits_of(number) == (number.view(np.int32), number)
    assert view(number, np.int32) == number.view(np.int32)


def test_the_plain_functions_stand_in_where_numba_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiled, "available", lambda: False)
    assert compiled.jit(half_of)(3.0) == 1.5
    done: list[tuple[int, str]] = []
    in_parallel(3, lambda task, name: done.append((task, name)), ("a",))
    assert done == [(0, "a"), (1, "a"), (2, "a")]
    in_parallel_back(2, lambda task, name: done.append((task, name)), ("b",))
    assert done[3:] == [(1, "b"), (0, "b")]


@needs_numba
def test_tasks_from_the_last_to_the_first() -> None:
    compiled.use_threads(1)
    out, done = np.zeros(5, np.int64), np.zeros(1, np.int64)
    order_back(out, done)
    assert out.tolist() == [5, 4, 3, 2, 1]
    compiled.use_threads(2)
    numbers = np.arange(5)
    pairs = np.zeros((5, 2), np.int64)
    shares_back(numbers, pairs)
    assert np.array_equal(pairs, np.stack([numbers * FACTOR, numbers * FACTOR + 1], 1))


@needs_numba
def test_threads_where_there_is_no_openmp(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled._threading_layer() in compiled.THREADING_LAYERS
    monkeypatch.setitem(sys.modules, "numba.np.ufunc.omppool", None)  # importing it fails
    assert compiled._threading_layer() == "workqueue"


def test_a_fingerprint_is_of_all_that_a_kernel_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(shares)
    assert fingerprint(shares) == before
    fast, exact = compiled.fast_kernel("f8"), compiled.kernel("f8")
    assert fingerprint(fast(half_of)) != fingerprint(exact(half_of))
    monkeypatch.setitem(globals(), "FACTOR", 4)  # two functions further down
    assert fingerprint(shares) != before


def test_numba_is_loaded_by_the_first_kernel() -> None:
    code = "import sys, pycaffe_fire, pycaffe_fire.data.source; print('numba' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "False"
