"""Compiling kernels with numba: without the GIL, cached on disk, on the caller's threads.

numba is loaded when the first kernel runs or somebody asks whether it is there: that takes longer
than everything else that `import pycaffe_fire` does.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache, cached_property
from types import FunctionType
from typing import Any, TypeVar, cast

from .kernel_cache import fingerprint, keep_kernels_in_cache_folder

F = TypeVar("F", bound=Callable[..., Any])

# No assumption about NaN or infinity: a diverging run must still show them.
FAST_MATH = {"contract", "reassoc", "arcp"}
# The team of threads that oneDNN uses too; and where its library is missing, one that a single
# thread at a time may use, as kernels on one thread do not.
THREADING_LAYERS = {"omp": "omppool", "workqueue": "workqueue"}


@cache
def numba() -> Any:
    """The library, set up for our kernels; None where there is none."""
    try:
        found = importlib.import_module("numba")
        importlib.import_module("numba.extending")
    except ImportError:  # a Python newer than numba supports: slower, same results
        return None
    found.config.THREADING_LAYER = _threading_layer()
    keep_kernels_in_cache_folder(found)
    _listen(found)
    importlib.import_module("numba.np.ufunc.parallel")._launch_threads()
    return found


def _threading_layer() -> str:
    for name, module in THREADING_LAYERS.items():
        with contextlib.suppress(ImportError):
            importlib.import_module(f"numba.np.ufunc.{module}")
            return name
    return "default"


def available() -> bool:
    """Are kernels compiled here? Else NumPy does their work."""
    return numba() is not None


def jit(function: F) -> F:
    """Compile with numba; the plain function where there is no numba."""
    return cast(F, Kernel(function))


def fast_jit(function: F) -> F:
    """The same with licence to reorder arithmetic: results may differ between machines."""
    return cast(F, Kernel(function, fastmath=FAST_MATH))


def part(function: F) -> F:
    """Compile a function that only kernels call."""
    return cast(F, Part(function))


def fast_part(function: F) -> F:
    """The same with licence to reorder arithmetic."""
    return cast(F, Part(function, fastmath=FAST_MATH))


def inlined(function: F) -> F:
    """A building block of other kernels, compiled into them."""
    return cast(F, Inlined(function))


_making = threading.RLock()


class BuildingBlock:
    """What kernels are made of: a function, and what numba makes of it when it is needed."""

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self.function, self.options = function, options
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def made_of(self) -> tuple[Any, ...]:
        """All that the compiled code depends on, for `fingerprint`."""
        return type(self).__name__, self.options, self.function

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    @property
    def compiled(self) -> Any:
        """What takes its place in the source of kernels."""
        with _making:
            return self._compiled

    @cached_property
    def _compiled(self) -> Any:
        raise NotImplementedError

    def _resolved(self) -> FunctionType:
        """The function, with numba's objects in place of the building blocks that it names."""
        own, code = self.function.__globals__, self.function.__code__
        blocks = {
            name: own[name] for name in code.co_names if isinstance(own.get(name), BuildingBlock)
        }
        made = {name: block.compiled for name, block in blocks.items()}
        found = FunctionType(code, {**own, **made}, code.co_name, self.function.__defaults__)
        found.__module__, found.__doc__ = self.function.__module__, self.function.__doc__
        return found


class Intrinsic(BuildingBlock):
    """A function that writes instructions; `plain` does the same in Python."""

    def __init__(
        self, function: Callable[..., Any], plain: Callable[..., Any] | None = None
    ) -> None:
        super().__init__(function)
        self._plain = plain

    def __call__(self, *arguments: Any) -> Any:
        if self._plain is None:
            raise NotImplementedError(f"{self.__name__} is for kernels")
        return self._plain(*arguments)

    @cached_property
    def _compiled(self) -> Any:
        return numba().extending.intrinsic(self.function)


class Inlined(BuildingBlock):
    """Becomes part of the source of its callers."""

    @cached_property
    def _compiled(self) -> Any:
        return numba().njit(inline="always")(self._resolved())


class Part(BuildingBlock):
    """Compiled on its own, without a way in for Python."""

    @cached_property
    def _compiled(self) -> Any:
        options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, **self.options}
        return numba().njit(nogil=True, error_model="numpy", **options)(self._resolved())


class Kernel(BuildingBlock):
    """Python calls it: compiled for the types that it first meets, and kept on disk."""

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)

    @cached_property
    def _compiled(self) -> Any:
        if not available():
            return self.function
        options = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, **self.options}
        function = self._resolved()
        function.fingerprint = fingerprint(numba().__version__, self)  # type: ignore[attr-defined]
        try:
            made = numba().njit(cache=True, **options)(function)
        except RuntimeError:  # no folder to cache in: a read-only installation without a home
            made = numba().njit(**options)(function)
        _compile_beside_main_thread(made)
        return made


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


_compilations = _Compilations()


def _listen(library: Any) -> None:
    """numba reports what it compiles, not what it finds in its cache."""

    class Listener(library.core.event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            _compilations.count(starts=True)

        def on_end(self, event: Any) -> None:
            _compilations.count(starts=False)

    library.core.event.register("numba:compile", Listener())


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


def use_threads(threads: int) -> None:
    """Kernels that this Python thread calls from now on run on `threads` threads."""
    library = numba()
    if library is not None:
        library.set_num_threads(max(1, min(threads, library.config.NUMBA_NUM_THREADS)))
