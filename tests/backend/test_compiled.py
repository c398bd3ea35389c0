"""Compiling kernels: beside the main thread, which answers signals meanwhile."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from pycaffe_fire.backend import compiled

needs_numba = pytest.mark.skipif(compiled.numba is None, reason="there is no numba")


def half_of(number: float) -> float:
    return number / 2


def broken(number: float) -> float:
    return number + "a"  # type: ignore[operator]


@pytest.fixture
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    njit = compiled.numba.njit
    monkeypatch.setattr(compiled.numba, "njit", lambda cache=False, **options: njit(**options))


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
    with pytest.raises(compiled.numba.core.errors.TypingError, match="number"):
        compiled.jit(broken)(1.0)
