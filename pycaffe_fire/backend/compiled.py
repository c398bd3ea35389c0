"""Compiling kernels with numba: without the GIL, cached on disk, on the caller's threads."""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from .kernel_cache import keep_kernels_in_cache_folder

F = TypeVar("F", bound=Callable[..., Any])

# No assumption about NaN or infinity: a diverging run must still show them.
FAST_MATH = {"contract", "reassoc", "arcp"}

numba: Any = None
with contextlib.suppress(ImportError):  # a Python newer than numba supports: slower, same results
    numba = importlib.import_module("numba")
    importlib.import_module("numba.extending")
    # The team of threads that oneDNN uses too, and the layer that several threads may enter.
    numba.config.THREADING_LAYER = "omp"
    keep_kernels_in_cache_folder(numba)


def jit(function: F) -> F:
    """Compile with numba; the plain function where there is no numba."""
    return _compile(function, error_model="numpy")


def parallel_jit(function: F) -> F:
    """Compile loops over `prange` for the number of threads that `use_threads` last set."""
    return _compile(function, parallel=True, fastmath=FAST_MATH, error_model="numpy")


def exact_parallel_jit(function: F) -> F:
    """The same without licence to reorder arithmetic: one result on every machine."""
    return _compile(function, parallel=True, error_model="numpy")


def part(function: F) -> F:
    """Compile a function that kernels call."""
    return _compile(function, fastmath=FAST_MATH, error_model="numpy")


def inlined(function: F) -> F:
    """A building block of other kernels, compiled into them."""
    compiled: F = function if numba is None else numba.njit(inline="always")(function)
    return compiled


def intrinsic(function: F) -> F:
    """A function that writes the instructions of a building block, which kernels then call."""
    made: F = function if numba is None else numba.extending.intrinsic(function)
    return made


def _compile(function: F, **options: Any) -> F:
    if numba is None:
        return function
    try:
        compiled: F = numba.njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # no folder to cache in: a read-only installation without a home
        compiled = numba.njit(nogil=True, **options)(function)
    _compile_beside_main_thread(compiled)
    return compiled


def _compile_beside_main_thread(dispatcher: Any) -> None:
    """Compile in another thread what the main thread calls first, so that it answers signals.

    LLVM may keep a thread for seconds, and what a signal's handler raises in one of its callbacks
    is lost, which leaves the kernel half-made. An interrupted thread waits no longer; the compiler
    finishes that one kernel.
    """
    compile_for = dispatcher._compile_for_args

    def compile_beside(*arguments: Any, **keywords: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            return compile_for(*arguments, **keywords)
        made: Future[Any] = Future()

        def compile_now() -> None:
            try:
                made.set_result(compile_for(*arguments, **keywords))
            except BaseException as error:  # raised where the kernel is needed
                made.set_exception(error)

        threading.Thread(target=compile_now, name="compiler").start()
        return made.result()

    dispatcher._compile_for_args = compile_beside


class _Compilations:
    """How many kernels are being compiled, and have been since the first."""

    def __init__(self) -> None:
        self.tell: Callable[[int, float], None] | None = None
        self.refused: Callable[[], bool] = lambda: False
        self.running = self.done = 0
        self._began = 0.0
        self._lock = threading.Lock()

    def count(self, starts: bool) -> None:
        if starts and self.refused():
            raise KeyboardInterrupt
        with self._lock:
            self._began = self._began or time.perf_counter()
            self.running += 1 if starts else -1
            self.done += not starts
        if self.tell is not None:
            self.tell(self.done, time.perf_counter() - self._began)


def _listen(compilations: _Compilations) -> None:
    """numba reports what it compiles, not what it finds in its cache."""

    class Listener(numba.core.event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            compilations.count(starts=True)

        def on_end(self, event: Any) -> None:
            compilations.count(starts=False)

    numba.core.event.register("numba:compile", Listener())


_compilations = _Compilations()
if numba is not None:
    _listen(_compilations)


def compiling() -> bool:
    """Is a kernel being compiled right now, in any thread?"""
    return _compilations.running > 0


@contextlib.contextmanager
def on_compiling(tell: Callable[[int, float], None]) -> Iterator[None]:
    """Meanwhile call `tell` whenever a kernel that is in no cache begins or ends to be compiled,
    in the thread that needs it, with the number compiled so far and the seconds since the first."""
    before, _compilations.tell = _compilations.tell, tell
    try:
        yield
    finally:
        _compilations.tell = before


@contextlib.contextmanager
def interrupted_if(asked: Callable[[], bool]) -> Iterator[None]:
    """Meanwhile, where `asked()`, KeyboardInterrupt takes the place of compiling one more."""
    before, _compilations.refused = _compilations.refused, asked
    try:
        yield
    finally:
        _compilations.refused = before


prange: Any = range if numba is None else numba.prange


def use_threads(threads: int) -> None:
    """Kernels that this Python thread calls from now on run on `threads` threads."""
    if numba is not None:
        numba.set_num_threads(max(1, min(threads, numba.config.NUMBA_NUM_THREADS)))
