"""The native kernel library: choosing the instruction set, loading it, and calling its kernels.

A kernel is a C function of one struct. Its Python class declares the same fields once, as
annotations, and states in `check` how many elements of each array the kernel touches:

    class Relu(Kernel):
        name = "relu"
        x: Floats
        y: Floats
        count: int
        slope: float

        def check(self) -> None:
            self.need(x=self.count, y=self.count)

    relu = Relu(threads=2, x=x, y=y, count=x.size, slope=0.0)
    relu.run()          # as often as wanted
    relu.x = other      # fields can change between runs; sizes are checked before the next run

docs/cpu.md says how to add one.
"""

from __future__ import annotations

import ctypes as C
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from ...errors import BackendError
from ..openmp import LIBGOMP, bounded_spin
from ..tensor import Array
from .native import build

log = logging.getLogger("pycaffe_fire")

ISA_VARIABLE = "FIRE_CPU_ISA"
FOLDER_VARIABLE = "FIRE_CPU_LIBRARIES"  # a folder with other libraries, as tools/sanitize.py makes
TEAM_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")

# Fields that are C-contiguous arrays of one type. `Floats | None` may be NULL in C.
Floats = Annotated[Array, np.float32]
Doubles = Annotated[Array, np.float64]
Bytes = Annotated[Array, np.uint8]
Int32s = Annotated[Array, np.int32]
Uint32s = Annotated[Array, np.uint32]
Ints = Annotated[Array, np.int64]
# A field that is a table of such arrays: `const float *const *` in C.
FloatArrays = Annotated[Sequence[Array], np.float32]


class Library:
    """One loaded variant of the kernels."""

    def __init__(self, path: Path, isa: str) -> None:
        self.isa, self.path = isa, path
        self._library = C.CDLL(str(path))
        self._functions: dict[type[Kernel], Callable[[Any], None]] = {}
        self._use_team()

    def _use_team(self) -> None:
        """Run tasks on the threads that oneDNN uses, where its OpenMP library loads."""
        if sys.platform != "linux":
            return
        try:
            with bounded_spin():
                team = C.CDLL(LIBGOMP)
        except OSError:
            return
        functions = (C.cast(getattr(team, name), C.c_void_p) for name in TEAM_FUNCTIONS)
        self._library.fire_use_team(*functions)

    @property
    def highest_isa(self) -> int:
        """The number of the highest variant that this processor executes."""
        return int(self._library.fire_isa())

    def bind(self, kernel: Kernel) -> Callable[[Any], None]:
        """Return what runs a kernel, given the address of its struct."""
        return self.function(type(kernel))

    def function(self, kernel: type[Kernel]) -> Callable[[Any], None]:
        """Return a kernel's C function, after checking that C and Python agree on its struct."""
        found = self._functions.get(kernel)
        if found is None:
            try:
                function = getattr(self._library, f"fire_{kernel.name}")
                size = C.c_int64.in_dll(self._library, f"fire_{kernel.name}_size").value
            except (AttributeError, ValueError):
                raise BackendError(f"{self.path}: has no kernel {kernel.name}") from None
            if size != C.sizeof(kernel.Struct):
                raise BackendError(
                    f"{self.path}: struct {kernel.name} has {size} bytes, but its fields in "
                    f"Python ({kernel.__module__}) have {C.sizeof(kernel.Struct)}"
                )
            function.restype = None
            found = self._functions[kernel] = function
        return found


class Kernel:
    """A call of one C function: its struct, and the arrays that the struct points to.

    A subclass names the function, declares the struct's fields in C's order and implements
    `check`. Not thread-safe; instances that share no arrays may run at the same time.
    """

    name: ClassVar[str]
    Struct: ClassVar[type[C.Structure]]
    fields: ClassVar[tuple[str, ...]] = ()
    threads: int  # the first field of every struct

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        fields = []
        for name, kind in get_type_hints(cls, include_extras=True).items():
            if get_origin(kind) is not ClassVar:
                field = _field(name, kind)
                fields.append((name, field.ctype))
                setattr(cls, name, field)
        cls.fields = tuple(name for name, _ in fields)
        cls.Struct = type(cls.__name__, (C.Structure,), {"_fields_": fields})

    def __init__(self, **values: Any) -> None:
        """Set fields by name; those left out are 0 or NULL until they are set."""
        self._struct = self.Struct()
        self._arrays: dict[str, Any] = {}  # keeps alive what the struct points to
        self._tables: dict[str, Any] = {}
        self._is_checked = False
        self._function = load().bind(self)
        self._argument = C.byref(self._struct)
        for name, value in values.items():
            if not isinstance(getattr(type(self), name, None), _Field):
                raise BackendError(f"kernel {self.name} has no field {name}")
            setattr(self, name, value)

    def check(self) -> None:
        """Call `need` with the number of elements that the kernel touches in each array."""
        raise NotImplementedError

    def need(self, **elements: int) -> None:
        """Raise BackendError unless arrays have at least so many elements.

        A table of arrays needs so many in each. None is fine where the field allows it.
        """
        for name, count in elements.items():
            array = self._arrays.get(name)
            if array is None:
                if not getattr(type(self), name).is_optional:
                    raise BackendError(f"kernel {self.name}: field {name} is not set")
                continue
            for each in array if isinstance(array, list) else [array]:
                if each.size < count:
                    raise BackendError(
                        f"kernel {self.name}: {name} has {each.size} elements, the kernel needs "
                        f"{count}"
                    )

    def run(self) -> None:
        """Run the kernel; other Python threads go on meanwhile."""
        if not self._is_checked:
            self._check_all()
        self._function(self._argument)

    def _check_all(self) -> None:
        if self.threads < 1:
            raise BackendError(f"kernel {self.name}: needs at least 1 thread, got {self.threads}")
        for name in self.fields:
            if isinstance(getattr(type(self), name), _ArrayField):
                self.need(**{name: 0})  # it is set
        self.check()
        self._is_checked = True


class _Field:
    """A number in a kernel's struct."""

    def __init__(self, name: str, ctype: Any) -> None:
        self.name, self.ctype = name, ctype

    def __get__(self, kernel: Kernel | None, owner: type) -> Any:
        return self if kernel is None else getattr(kernel._struct, self.name)

    def __set__(self, kernel: Kernel, value: Any) -> None:
        setattr(kernel._struct, self.name, value)
        if self.ctype is C.c_int64:  # sizes depend on integers
            kernel._is_checked = False


class _ArrayField(_Field):
    """A pointer to the elements of a NumPy array."""

    def __init__(self, name: str, dtype: Any, is_optional: bool) -> None:
        super().__init__(name, C.c_void_p)
        self.dtype, self.is_optional = np.dtype(dtype), is_optional

    def __get__(self, kernel: Kernel | None, owner: type) -> Any:
        return self if kernel is None else kernel._arrays.get(self.name)

    def __set__(self, kernel: Kernel, value: Any) -> None:
        before = kernel._arrays.get(self.name)
        if before is None or value is None or value.size < before.size:
            kernel._is_checked = False
        super().__set__(kernel, None if value is None else self.address(kernel, value))
        kernel._arrays[self.name] = value

    def address(self, kernel: Kernel, array: Any) -> int:
        """Return an array's address, or raise BackendError if C would misread the array."""
        if array.dtype != self.dtype or not array.flags.c_contiguous:
            order = "" if array.flags.c_contiguous else " that is not C-contiguous"
            raise BackendError(
                f"kernel {kernel.name}: {self.name} must be a C-contiguous array of {self.dtype}, "
                f"got one of {array.dtype}{order}"
            )
        try:  # five times as fast
            return C.addressof(C.c_char.from_buffer(array))
        except (TypeError, ValueError):  # read-only or empty
            return int(array.ctypes.data)


class _TableField(_ArrayField):
    """A pointer to the addresses of several arrays."""

    def __set__(self, kernel: Kernel, value: Any) -> None:
        arrays = None if value is None else list(value)
        kernel._arrays[self.name] = arrays
        table = None
        if arrays is not None:
            table = (C.c_void_p * len(arrays))(*(self.address(kernel, a) for a in arrays))
        kernel._tables[self.name], kernel._is_checked = table, False
        _Field.__set__(self, kernel, None if table is None else C.addressof(table))


def _field(name: str, kind: Any) -> _Field:
    """Make the descriptor of a field from its annotation."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    is_optional = type(None) in options
    kind = next(each for each in options if each is not type(None))
    if get_origin(kind) is Annotated:
        held, dtype = get_args(kind)
        field = _TableField if get_origin(held) is not None else _ArrayField
        return field(name, dtype, is_optional)
    return _Field(name, {int: C.c_int64, float: C.c_float}[kind])


# Loading ------------------------------------------------------------------------------------------


@cache
def supported() -> tuple[str, ...]:
    """Return the instruction sets that this processor executes, the highest first."""
    names = [variant.isa for variant in _target().variants]
    if len(names) > 1:
        names = names[: _open(names[0]).highest_isa + 1]
    return tuple(reversed(names))


def load(isa: str | None = None) -> Library:
    """Return the library for an instruction set; by default $FIRE_CPU_ISA or the highest.

    Raises:
        BackendError: The processor does not execute it, or there is no library.
    """
    if isa is None:
        return _in_use[-1] if _in_use else _default()
    _refuse_unknown(isa, "instruction set")
    return _open(isa)


@cache
def _default() -> Library:
    named = os.environ.get(ISA_VARIABLE)
    if named is None:
        return _open(supported()[0])
    _refuse_unknown(named, ISA_VARIABLE)
    return _open(named)


def _refuse_unknown(isa: str, what: str) -> None:
    if isa not in supported():
        raise BackendError(
            f'{what}: this processor does not execute "{isa}"; it executes {", ".join(supported())}'
        )


_in_use: list[Library] = []


@contextmanager
def using(chosen: str | Library) -> Iterator[Library]:
    """Context manager: run kernels made inside, in any thread, by one library.

    Args:
        chosen: The library, or the instruction set of one.
    """
    _in_use.append(load(chosen) if isinstance(chosen, str) else chosen)
    try:
        yield _in_use[-1]
    finally:
        _in_use.pop()


@cache
def available() -> bool:
    """Return True if the library loads; else NumPy computes, and the log says why, once."""
    try:
        _check_build()
    except build.NoCompiler as error:
        log.warning("Running on the slower NumPy ops: the CPU kernels are not compiled (%s)", error)
        return False
    load()
    return True


@cache
def _open(isa: str) -> Library:
    path = Path(os.environ.get(FOLDER_VARIABLE, build.SOURCES), _target().library(isa))
    try:
        _check_build()
        return Library(path, isa)
    except build.NoCompiler as error:
        raise BackendError(f"the CPU kernels are not compiled: {error}") from None
    except OSError as error:
        raise BackendError(f"the CPU kernels do not load: {error}") from None


@cache
def _target() -> build.Target:
    return build.this_machine()


@cache
def _check_build() -> None:
    """Compile the libraries if their sources have changed; installed packages have no sources."""
    if not _target().variants:
        raise build.NoCompiler(f"there are none for {_target().machine}")
    if FOLDER_VARIABLE in os.environ:
        return
    libraries = [build.SOURCES / _target().library(v.isa) for v in _target().variants]
    if not (build.SOURCES / "fire.h").exists():
        if not all(path.exists() for path in libraries):
            raise build.NoCompiler("there was no C compiler when the package was installed")
        return
    if build.is_current():
        return
    if not os.access(build.SOURCES, os.W_OK):
        raise build.NoCompiler(f"{build.SOURCES} is not writable")
    log.info("Compiling the CPU kernels, because a source has changed")
    try:
        build.update()
    except build.NoCompiler:
        raise
    except build.BuildError as error:
        raise BackendError(f"the CPU kernels do not compile:\n{error}") from None
