"""Launching our CUDA kernels, with the checks that CuPy leaves out.

CuPy passes whatever it is given: a float64 for a `float`, a transposed view for a matrix, and the
kernel reads garbage. So a kernel's parameters are read from its own source, and every launch is
checked against them: count, types, widths and contiguity.

Parameters that a source marks FIXED are shapes. A launch that fills a device gets a variant of its
kernel in which they are constants, so that nothing divides by them; the first launch of a shape
compiles it, and smaller ones, where that would not be worth it, share one kernel for all shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...errors import BackendError
from ..tensor import FLOAT32, Array

if TYPE_CHECKING:
    from .graph import GraphRecorder

Source = Callable[[str, str], str]

KERNELS = Path(__file__).parent / "kernels"
THREADS = 256
MAX_BLOCKS = 16384  # enough to fill any device; loops take care of the rest
OPTIONS = ("-std=c++17",)
WORTH_BLOCKS = 128  # that a launch must have for a variant of its own
MOST_VARIANTS = 256  # on one device; further shapes share the kernel for all

# What kernel files need in front of them besides common.cuh.
HEADERS = {
    "batch_norm": ("sums", "channels"),
    "channel_sums": ("sums", "channels"),
    "depthwise": ("geometry",),
    "depthwise_weights": ("sums", "geometry"),
    "dots": ("sums",),
    "im2col": ("geometry",),
    "pooling": ("geometry",),
    "pooling_last": ("geometry",),
    "softmax_loss": ("sums",),
    "squares": ("sums",),
}

_KERNEL = re.compile(r"__global__ void (\w+)\(([^)]*)\)")
_HEAD = re.compile(_KERNEL.pattern + r"\s*\{")
_WHOLE = re.compile(r'extern "C" ' + _KERNEL.pattern + r".*?\n\}\n", re.DOTALL)
_NULL = np.uint64(0)
_FIXED = "FIXED"
_QUALIFIERS = ("const", "*", "__restrict__", _FIXED)
RUN_BYTES = 16  # that a thread takes at a time, in kernels that use each_run

# How blobs may be stored: the type that kernels call `real`, and the arrays that hold it.
KINDS: dict[str, Any] = {FLOAT32: np.float32, "float16": np.float16, "bfloat16": np.uint16}

_TYPES = {
    "real": None,  # whatever the launch is for
    "float": np.float32,
    "double": np.float64,
    "int": np.int32,
    "long long": np.int64,
    "unsigned long long": np.uint64,
    "unsigned short": np.uint16,
}


class Parameter(NamedTuple):
    """One parameter of a kernel: a pointer to `dtype` (None: the stored type) or a value of it;
    `fixed`: one that a variant may have as a constant."""

    name: str
    dtype: Any
    pointer: bool
    fixed: bool


class Constants(NamedTuple):
    """Integers for a FIXED pointer: in device memory, and as variants of kernels take them."""

    numbers: tuple[int, ...]
    array: Array


def constants(xp: Any, numbers: Sequence[int]) -> Constants:
    return Constants(tuple(map(int, numbers)), xp.asarray(np.array(numbers, np.int32)))


Fixed = tuple["int | tuple[int, ...]", ...]  # values of a kernel's FIXED parameters, in order


def source_of(file: str, kind: str = FLOAT32) -> str:
    """The whole source of a kernel file, as a compiler sees it, for values stored as `kind`."""
    names = [f"{header}.cuh" for header in ("common", "real", *HEADERS.get(file, ()))]
    parts = [(KERNELS / name).read_text() for name in (*names, f"{file}.cu")]
    return "\n".join([f"#define REAL {kind}", *parts])


def reading_source(file: str, kind: str) -> str:
    """The same with kernels whose parameters besides n are all pointers: `float rate` becomes
    `const float* at_rate`, and the body begins with `float rate = *at_rate;`."""

    def rewrite(match: re.Match[str]) -> str:
        parameters = [" ".join(part.split()) for part in match[2].split(",")]
        numbers = {p: p.rsplit(" ", 1) for p in parameters[1:] if "*" not in p}
        pointers = {p: f"const {what}* at_{name}" for p, (what, name) in numbers.items()}
        reads = " ".join(f"{p} = *at_{name};" for p, (_, name) in numbers.items())
        taken = ", ".join(pointers.get(p, p) for p in parameters)
        return f"__global__ void {match[1]}({taken}) {{ {reads}"

    return _HEAD.sub(rewrite, source_of(file, kind))


def fixed_source(name: str, kind: str, fixed: Fixed) -> str:
    """The source of one kernel alone, its FIXED parameters nameless and constants instead:
    `FIXED int inner` becomes `int`, and the body begins with `constexpr int inner = 49;`."""
    given = iter(fixed)

    def constant(parameter: str) -> str:
        value, own = next(given), parameter.rsplit(maxsplit=1)[1]
        if isinstance(value, tuple):
            return f"constexpr int {own}[] = {{{', '.join(map(str, value))}}};"
        return f"constexpr int {own} = {value};"

    def rewrite(match: re.Match[str]) -> str:
        parameters = [" ".join(part.split()) for part in match[2].split(",")]
        made = " ".join(constant(p) for p in parameters if p.startswith(_FIXED))
        taken = [
            p.removeprefix(_FIXED).rsplit(maxsplit=1)[0] if p.startswith(_FIXED) else p
            for p in parameters
        ]
        return f"__global__ void {match[1]}({', '.join(taken)}) {{ {made}"

    alone = _WHOLE.sub(
        lambda whole: whole[0] if whole[1] == name else "", source_of(_catalogue()[name].file, kind)
    )
    return "#define CONSTANTS\n" + _HEAD.sub(rewrite, alone)


def kind_of(array: Array) -> str:
    """How the values of a device array are stored."""
    return next(kind for kind, dtype in KINDS.items() if array.dtype == dtype)


def words(elements: int, kind: str) -> int:
    """How much of a float32 buffer they take, stored as `kind`."""
    return -(-elements * int(np.dtype(KINDS[kind]).itemsize) // 4)


@cache
def files() -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in KERNELS.glob("*.cu")))


class Entry(NamedTuple):
    """A kernel as its source has it."""

    file: str
    parameters: tuple[Parameter, ...]
    takes_runs: bool  # of neighbouring elements, instead of single ones


@cache
def _catalogue() -> dict[str, Entry]:
    found = {}
    for file in files():
        _, *parts = _KERNEL.split((KERNELS / f"{file}.cu").read_text())
        for name, text, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            parameters = tuple(_parameter(part) for part in text.split(","))
            found[name] = Entry(file, parameters, "each_run" in body)
    return found


def kernel_names(file: str | None = None) -> tuple[str, ...]:
    """Of all kernels, or those of one file."""
    return tuple(sorted(name for name, it in _catalogue().items() if file in (None, it.file)))


def _parameter(text: str) -> Parameter:
    kind, name = text.replace("*", " * ").rsplit(maxsplit=1)
    base = " ".join(word for word in kind.split() if word not in _QUALIFIERS)
    return Parameter(name, _TYPES[base], "*" in kind, _FIXED in kind.split())


class Kernel:
    """One kernel, ready to launch on the current stream."""

    def __init__(self, owner: Kernels, name: str, kind: str) -> None:
        file, parameters, takes_runs = _catalogue()[name]
        size = np.dtype(KINDS[kind]).itemsize
        self._per_block = THREADS * (RUN_BYTES // size if takes_runs else 1)
        self.name, self._owner, self._place = name, owner, (file, kind)
        self._parameters = tuple(
            p if p.dtype is not None else p._replace(dtype=KINDS[kind]) for p in parameters
        )
        # Its parameters besides n that are numbers.
        self.numbers = {p.name: p.dtype for p in self._parameters[1:] if not p.pointer}
        self._array = owner.xp.ndarray
        self._fixed = [i for i, p in enumerate(self._parameters[1:]) if p.fixed]
        self._function = owner.module(file, kind, source_of).get_function(name)

    def __call__(self, n: int, *arguments: Any) -> None:
        """Run for `n` elements, the kernel's first parameter."""
        self._launch(-(-n // self._per_block), n, arguments)

    def blocks(self, n: int, *arguments: Any) -> None:
        """Run one block for each of `n` items."""
        self._launch(n, n, arguments)

    def _launch(self, blocks: int, n: int, arguments: tuple[Any, ...]) -> None:
        if len(arguments) + 1 != len(self._parameters):
            raise BackendError(
                f"kernel {self.name}: takes {len(self._parameters) - 1} arguments, "
                f"got {len(arguments)}"
            )
        values = [
            self._checked(parameter, value)
            for parameter, value in zip(self._parameters, (n, *arguments), strict=True)
        ]
        recorder = self._owner.recorder
        if n and not (recorder is not None and recorder.launched(self, blocks, values)):
            function = self._variant(arguments) if blocks >= WORTH_BLOCKS else self._function
            function((min(blocks, MAX_BLOCKS),), (THREADS,), tuple(values))

    def _variant(self, arguments: tuple[Any, ...]) -> Any:
        """The function for these shapes, or the one for all."""
        if not self._fixed:
            return self._function
        given = [arguments[i] for i in self._fixed]
        fixed = tuple(v.numbers if isinstance(v, Constants) else v for v in given)
        return self._owner.variant(self.name, self._place[1], fixed) or self._function

    def numbers_of(self, values: Sequence[Any]) -> list[Any]:
        """The numbers besides n among the arguments of a launch."""
        pairs = zip(self._parameters[1:], values[1:], strict=True)
        return [value for parameter, value in pairs if not parameter.pointer]

    def launch_reading(self, blocks: int, values: Sequence[Any], places: Sequence[Array]) -> None:
        """Launch the variant that reads its numbers besides n from `places`."""
        rest = iter(places)
        pairs = zip(self._parameters[1:], values[1:], strict=True)
        arguments = [value if parameter.pointer else next(rest) for parameter, value in pairs]
        self.reading((min(blocks, MAX_BLOCKS),), (THREADS,), (values[0], *arguments))

    @cached_property
    def reading(self) -> Any:
        """The variant that reads its numbers from memory."""
        return self._owner.module(*self._place, reading_source).get_function(self.name)

    def _checked(self, parameter: Parameter, value: Any) -> Any:
        if parameter.pointer:
            return self._checked_array(parameter, value)
        if isinstance(value, (self._array, np.ndarray)):
            self._refuse(parameter, "an array", "a number")
        if issubclass(parameter.dtype, np.floating):
            return parameter.dtype(value)
        limits = np.iinfo(parameter.dtype)
        if not isinstance(value, (int, np.integer)):
            self._refuse(parameter, type(value).__name__, "an integer")
        if not limits.min <= value <= limits.max:
            self._refuse(parameter, f"{value:,}", f"at most {limits.max:,}")
        return parameter.dtype(value)

    def _checked_array(self, parameter: Parameter, value: Any) -> Array:
        if value is None:
            return _NULL
        if isinstance(value, Constants):
            value = value.array
        if not isinstance(value, self._array):
            self._refuse(parameter, type(value).__name__, "a device array")
        if value.dtype != parameter.dtype:
            self._refuse(parameter, f"an array of {value.dtype}", np.dtype(parameter.dtype).name)
        if not value.flags.c_contiguous:
            self._refuse(parameter, f"a view with strides {value.strides}", "a contiguous array")
        return value

    def _refuse(self, parameter: Parameter, got: str, expected: str) -> None:
        raise BackendError(
            f"kernel {self.name}, parameter {parameter.name}: expected {expected}, got {got}"
        )


class Kernels:
    """All kernels on one device, as `kernels[name]` or, for blobs stored otherwise than as
    float32, `kernels[name, kind]`; a file is compiled when its first kernel is asked for."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        self.recorder: GraphRecorder | None = None  # while one records
        self._modules: dict[tuple[str, str, Source], Any] = {}
        self._kernels: dict[tuple[str, str], Kernel] = {}
        self.variants: dict[tuple[str, str, Fixed], Any] = {}  # by kernel, kind and constants

    def __getitem__(self, key: str | tuple[str, str]) -> Kernel:
        name, kind = (key, FLOAT32) if isinstance(key, str) else key
        if (name, kind) not in self._kernels:
            self._kernels[name, kind] = Kernel(self, name, kind)
        return self._kernels[name, kind]

    def prepare(self, *numbers: str) -> None:
        """Load the reading variants of all kernels in use that have one of these numbers."""
        for kernel in self._kernels.values():
            if not kernel.numbers.keys().isdisjoint(numbers):
                kernel.reading  # noqa: B018

    def module(self, file: str, kind: str, source: Source) -> Any:
        """A file, compiled once for every kind and form of its source."""
        if (file, kind, source) not in self._modules:
            code = source(file, kind)
            self._modules[file, kind, source] = self.xp.RawModule(code=code, options=OPTIONS)
        return self._modules[file, kind, source]

    def variant(self, name: str, kind: str, fixed: Fixed) -> Any:
        """A kernel with constants in it, compiled once; None when there are too many."""
        key = (name, kind, fixed)
        if key not in self.variants:
            if len(self.variants) >= MOST_VARIANTS:
                return None
            module = self.xp.RawModule(code=fixed_source(*key), options=OPTIONS)
            self.variants[key] = module.get_function(name)
        return self.variants[key]
