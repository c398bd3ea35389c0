"""Compiling kernels with numba: without the GIL, cached on disk, on the caller's threads.

numba is loaded when the first kernel runs or somebody asks whether it is there: that takes longer
than everything else that `import pycaffe_fire` does.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

from .kernel_cache import fingerprint, held, keep_kernels_in_cache_folder
from .kernel_workers import workers
from .lean_compiler import OPTIONS as LEAN
from .lean_compiler import lean
from .openmp import bounded_spin

F = TypeVar("F", bound=Callable[..., Any])

# No assumption about NaN or infinity: a diverging run must still show them.
FAST_MATH = {"contract", "reassoc", "arcp"}
OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
PAUSE = 0.01  # seconds between looks at what another process compiles
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
    with bounded_spin():  # the threading layer may be the first to load libgomp
        found.config.THREADING_LAYER = _threading_layer()
    keep_kernels_in_cache_folder(found)
    _listen(found)
    importlib.import_module("numba.np.ufunc.parallel")._launch_threads()
    return found


def load_compiler() -> None:
    """What numba would load with its first kernel, which takes it half a second."""
    target = numba().core.registry.cpu_target
    target.typing_context.refresh()
    target.target_context.refresh()


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
    """Compile with numba for the types that it meets; the plain function where there is none."""
    return cast(F, Kernel(function))


def kernel(types: str, **options: Any) -> Callable[[F], F]:
    """The same for types that are known, as numba writes them, so that it can be made ahead; it
    makes no arrays."""

    def make(function: F) -> F:
        return cast(F, Kernel(function, types, **LEAN, **options))

    return make


def table_kernel(function: F) -> F:
    """The same for a kernel whose argument is the address of a table of integers: addresses of
    arrays, and numbers. See `Kernel.native`."""
    return kernel("i8", no_cfunc_wrapper=False)(function)


def fast_kernel(types: str) -> Callable[[F], F]:
    """The same with licence to reorder arithmetic: results may differ between machines."""
    return kernel(types, fastmath=FAST_MATH)


def part(function: F) -> F:
    """Compile a function that only kernels call; it makes no arrays."""
    return cast(F, Part(function, **LEAN))


def fast_part(function: F) -> F:
    """The same with licence to reorder arithmetic."""
    return cast(F, Part(function, **LEAN, fastmath=FAST_MATH))


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
        return type(self).__name__, OPTIONS, self.options, self.function

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
    """Compiled into the kernels that call it, each time once; it returns nothing."""

    def made_of(self) -> tuple[Any, ...]:
        return *super().made_of(), compiled_into

    @cached_property
    def _compiled(self) -> Any:
        call = _calling(self._dispatcher)
        code = self.function.__code__
        names = ("typing", *code.co_varnames[: code.co_argcount])
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        call.__signature__ = inspect.Signature([inspect.Parameter(n, kind) for n in names])  # type: ignore[attr-defined]
        return numba().extending.intrinsic(call)

    @cached_property
    def _dispatcher(self) -> Any:
        options = {**OPTIONS, "no_cpython_wrapper": True, **self.options}
        return numba().njit(**options)(self._resolved())


def _calling(dispatcher: Any) -> Callable[..., Any]:
    """What numba needs to know of a call of a part."""
    types = importlib.import_module("numba.core.types")

    def call(typing: Any, *arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            made = compiled_into(context, dispatcher, signature.args)
            context.call_internal_no_propagate(builder, made.fndesc, made.signature, values)
            return context.get_dummy_value()

        return types.void(*arguments), generate

    call.dispatcher = dispatcher  # type: ignore[attr-defined]
    return call


def compiled_into(context: Any, dispatcher: Any, arguments: Any) -> Any:
    """A function as a part of the library that is being made, where it is optimised once.

    numba's own calls make a library of every function, down to machine code, and then another of
    all that its callers take from it.
    """
    compiler = importlib.import_module("numba.core.compiler")
    library = context.active_code_library
    parts = library.__dict__.setdefault("parts", {})
    if (dispatcher, arguments) not in parts:
        flags = compiler.Flags()
        dispatcher.targetdescr.options.parse_as_flags(flags, dispatcher.targetoptions)
        flags.no_compile = True
        made = compiler.compile_internal(
            context.typing_context, context, library, dispatcher.py_func, arguments,
            importlib.import_module("numba.core.types").void, flags, locals={},
        )  # fmt: skip
        function = library._final_module.get_function(made.fndesc.mangled_name)
        # Only for this library; and never made part of callers, since another library might have
        # another of this name: loops vectorise more surely on their own.
        function.linkage = "linkonce_any"
        parts[dispatcher, arguments] = made
    return parts[dispatcher, arguments]


class Kernel(BuildingBlock):
    """Python calls it: compiled for the types that it meets, and kept on disk.

    One process at a time compiles a kernel: one that needs it, or one beside (kernel_workers.py).
    """

    def __init__(self, function: Callable[..., Any], types: str = "", **options: Any) -> None:
        super().__init__(function, **options)
        self.types = types
        self.place = f"{function.__module__}:{function.__qualname__}"
        self._expected = False

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled(*arguments)

    @cached_property
    def _compiled(self) -> Any:
        if not available():
            return self.function
        options = {**OPTIONS, **self.options}
        function = self._resolved()
        function.fingerprint = fingerprint(numba().__version__, self)  # type: ignore[attr-defined]
        try:
            made = numba().njit(cache=True, **options)(function)
        except RuntimeError:  # no folder to cache in: a read-only installation without a home
            made = numba().njit(**options)(function)
        self._compile_for = made._compile_for_args
        made._compile_for_args = lambda *found: _beside_main_thread(
            lambda is_wanted: self._make(found, is_wanted)
        )
        return made

    def expect(self) -> None:
        """It will be called soon: unless it is in the cache, let a process beside compile it."""
        if self._expected or not self.types or not available():
            return
        self._expected = True
        index = self._index
        if index is not None and not index.exists():
            workers.ask(self)

    @property
    def _index(self) -> Path | None:
        """The file that is there when the kernel is in the cache; None where there is no cache."""
        file = getattr(self.compiled._cache, "_cache_file", None)
        return None if file is None else Path(file._index_path)

    @property
    def is_cached(self) -> bool:
        return self._index is None or self._index.exists()

    def make_ahead(self) -> bool:
        """Compile it for its types, unless that has been done or another process is at it; returns
        whether it was compiled."""
        index = self._index
        if index is None or index.exists():
            return False
        with held(index.with_suffix(".lock")) as ours:
            if ours:
                types, _ = numba().core.sigutils.normalize_signature(f"({self.types},)")
                with self._compiling():
                    self.compiled.compile(types)
            return ours

    @contextlib.contextmanager
    def _compiling(self) -> Iterator[None]:
        with _without_collector(), lean() if self.types else contextlib.nullcontext():
            yield

    @cached_property
    def native(self) -> Callable[[int], None]:
        """A kernel of one integer as a function of C: its calls look nothing up in Python."""
        made = self.compiled
        made._compile_for_args(0)
        (found,) = made.overloads.values()
        address = found.library.get_pointer_to_function(found.fndesc.llvm_cfunc_wrapper_name)
        return ctypes.CFUNCTYPE(None, ctypes.c_int64)(address)

    def _make(self, arguments: tuple[Any, ...], is_wanted: Callable[[], bool]) -> Any:
        """Load it, or compile it; while another process does, make others that are expected."""
        index = self._index
        if index is None or index.exists():
            return self._compile_for(*arguments)
        workers.ask()  # more will follow
        while is_wanted():
            with held(index.with_suffix(".lock")) as ours:
                if ours:  # or another process has made it by now
                    with self._compiling():
                        return self._compile_for(*arguments)
            _make_another()
        raise KeyboardInterrupt


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Meanwhile nobody looks for garbage: a compiler makes millions of objects and hardly any, and
    looking takes a tenth of its time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _make_another() -> None:
    """Compile one of the expected kernels; a moment's rest where others are at all of them."""
    with _compilations.elsewhere():
        if not any(each.make_ahead() for each in workers.unfinished()):
            time.sleep(PAUSE)


def expect(*kernels: Callable[..., Any]) -> None:
    """They will be called soon: those in no cache are compiled ahead, by processes beside."""
    for each in kernels:
        if isinstance(each, Kernel):
            each.expect()


def _beside_main_thread(make: Callable[[Callable[[], bool]], Any]) -> Any:
    """Compile in another thread what the main thread calls first, so that it answers signals.

    LLVM may keep a thread for seconds, and what a signal's handler raises in one of its callbacks
    is lost, which leaves the kernel half-made. An interrupted thread waits no longer; the compiler
    finishes that one kernel. `make` is given what tells whether it is still waited for. All that
    is expected is made as well, before the main thread goes on to compute.
    """
    if threading.current_thread() is not threading.main_thread():
        return make(lambda: True)
    made: Future[Any] = Future()
    gone = threading.Event()

    def make_now() -> None:
        try:
            found = make(lambda: not gone.is_set())
            while not gone.is_set() and workers.unfinished():
                _make_another()
            made.set_result(found)
        except BaseException as error:  # raised where the kernel is needed
            made.set_exception(error)

    threading.Thread(target=make_now, name="compiler").start()
    try:
        return made.result()
    finally:
        gone.set()


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

    @contextlib.contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Meanwhile a kernel that is needed here is compiled by another process."""
        self.count(starts=True)
        try:
            yield
        finally:
            with self._lock:
                self.running -= 1


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
