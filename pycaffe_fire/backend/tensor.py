"""A tensor whose freshest copy may be a plain array or the backend's native layout.

Caffe's SyncedMemory with one more state: nothing is converted unless it is asked for, and a cleared
tensor costs nothing until it is read or accumulated into.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..errors import BackendError
from .sizes import memory_shortage

if TYPE_CHECKING:
    from .base import Backend

Array = Any  # numpy.ndarray, or cupy.ndarray on the GPU
FLOAT32, BFLOAT16 = "float32", "bfloat16"

ZERO, NATIVE, PLAIN, BOTH, PACKED = 0, 1, 2, 3, 4
_UNHELD = 2  # references to a plain copy that only its tensor knows (and getrefcount's own)


def on_host(array: Array) -> np.ndarray[Any, Any]:
    """An array in ordinary memory; CuPy's have `get` to bring them there."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


class Layout:
    """How a logical shape lies in memory. This base class is the plain, C-contiguous one.

    `grid` = (samples, outer channels, pixels, inner channels) describes every layout of the
    family N [C/b] S [b] that our kernels understand, and is None for any other.
    """

    is_plain = True

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.elements = prod(self.shape)

    @property
    def grid(self) -> tuple[int, int, int, int] | None:
        if len(self.shape) < 2:
            return (self.shape[0] if self.shape else 1, 1, 1, 1)
        return (self.shape[0], self.shape[1], prod(self.shape[2:]), 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and other.is_plain and self.shape == other.shape

    def __hash__(self) -> int:
        return hash(self.shape)


class ChannelsLast(Layout):
    """(N, C, ...) stored as (N, ..., C)."""

    is_plain = False

    @property
    def grid(self) -> tuple[int, int, int, int]:
        return (self.shape[0], 1, prod(self.shape[2:]), self.shape[1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChannelsLast) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash(("channels last", self.shape))


class Form(Protocol):
    """Another order of a plain tensor's numbers, in the same memory."""

    def pack(self, storage: Array) -> None:
        """Bring plain values into this order."""

    def unpack(self, storage: Array) -> None:
        """Bring them back, bit for bit."""


class Tensor:
    """Storage in some layout, with a plain array on demand; `kind` says how elements are stored.

    `fresh` says which copies hold the value; ZERO means "all zeros, whatever the memory holds".
    A plan reads `buffer` after `sync()` and sets `fresh = NATIVE` after writing it. PACKED means
    that the memory holds the value in the order of `form`, for the plan that has packed it, until
    anybody else reads it.
    """

    kind = FLOAT32
    home: Tensor | None = None  # the tensor in whose memory it lies, if not in its own

    def __init__(self, backend: Backend, shape: Sequence[int]) -> None:
        self.backend = backend
        self.layout = backend.plain_layout(shape)
        self.buffer: Array | None = None
        self.fresh = ZERO
        self.pinned = False  # a pinned tensor keeps its layout: plans or other blobs count on it
        self.common = False  # do several layers or nets compute with it?
        self._form: Form | None = None
        # Told before the value is given out or its shape changes, where somebody has to know.
        self.guard: Callable[[Tensor], None] | None = None
        self._plain: Array | None = None
        self._window: Array | None = None  # the array of which a plain tensor exports views

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def words(self) -> int:
        """How many elements of a flat float32 buffer its native storage takes."""
        return self.layout.elements

    def store_as(self, kind: str) -> None:
        """Store elements as one of the backend's `kinds`; forgets the value."""

    @property
    def array(self) -> Array:
        """The value as a plain array that may be written in place."""
        if self.guard is not None:
            self.guard(self)
        if self.layout.is_plain:
            self.sync()
            return self._own_array()
        plain = self._fresh_plain()
        self.fresh = PLAIN
        self.backend.exported.add(self)
        return plain.view()

    def _own_array(self) -> Array:
        """Plain storage as an array."""
        assert self.buffer is not None
        count = prod(self.shape)
        if not count or not self.backend.on_host:
            return self.buffer[:count].reshape(self.shape)
        if self._window is None:  # over a memoryview, so that views refer to it and can be counted
            self._window = np.frombuffer(memoryview(self.buffer), self.buffer.dtype)
        return self._window[:count].reshape(self.shape)

    def copied(self, out: Array | None = None) -> Array:
        """A plain copy of the value, for somebody who does not want to change it; in `out`, if
        that has its shape."""
        if out is None or out.shape != self.shape:
            out = self.backend.xp.empty(self.shape, self.backend.dtype)
        if self.layout.is_plain:
            self.sync()
            assert self.buffer is not None
            out[...] = self.buffer[: prod(self.shape)].reshape(self.shape)
        elif self.fresh == NATIVE:
            self.backend.to_plain(self, out)
        else:
            out[...] = self._fresh_plain()
        return out

    def replace(self, values: Array) -> None:
        """Take a new value; arrays that a caller holds show it."""
        self.allocate()
        if self.layout.is_plain:
            assert self.buffer is not None
            self.buffer[: prod(self.shape)] = values.reshape(-1)
        elif self._plain is not None and self.held:
            self._plain[...] = values
            self.fresh = PLAIN
            return
        else:
            self.backend.from_plain(self, values)
        self.fresh, self._plain = NATIVE, None

    @property
    def host(self) -> Array:
        """The value as a NumPy array that may be written in place."""
        return self.array

    def _fresh_plain(self) -> Array:
        if self._plain is None:
            self._plain = self.backend.xp.empty(self.shape, self.backend.dtype)
        if self.fresh == ZERO:
            self._plain[...] = 0
        elif self.fresh == NATIVE:
            self.backend.to_plain(self, self._plain)
        return self._plain

    def sync(self) -> None:
        """Make the native copy fresh (what a plan does before it reads)."""
        if self.fresh & NATIVE:
            return
        self.allocate()
        if self.fresh == PACKED:
            assert self._form is not None
            self._change_order(self._form.unpack, NATIVE)
            return
        if self.fresh == ZERO:
            assert self.buffer is not None
            self.buffer[...] = 0
            self.fresh = NATIVE
        else:
            self.backend.from_plain(self, self._plain)
            self.fresh = BOTH

    @property
    def form(self) -> Form | None:
        """How the value is packed now, if it is."""
        return self._form if self.fresh == PACKED else None

    def pack(self, form: Form) -> None:
        """Keep the value of a plain tensor in another order, in its own memory."""
        if self.form == form:
            return
        self.sync()
        self._form = form
        self._change_order(form.pack, PACKED)

    def share(self) -> None:
        """From now on several layers or nets compute with it, maybe at the same time."""
        self.common = True
        if self.fresh == PACKED:
            self.sync()

    def _change_order(self, change: Callable[[Array], None], fresh: int) -> None:
        """By a thread of its own: Ctrl-C waits until the value is whole again."""
        assert self.layout.is_plain and self.buffer is not None
        storage = self.buffer[: prod(self.shape)]

        def work() -> None:
            change(storage)
            self.fresh = fresh

        with ThreadPoolExecutor(1) as pool:
            pool.submit(work).result()

    def allocate(self) -> None:
        if self.buffer is None:
            self.bind(self.backend.empty(self.layout.elements))

    def bind(self, buffer: Array | None) -> None:
        """Use `buffer` (flat, at least `layout.elements` long) as the native storage."""
        self.buffer, self._window = buffer, None

    def move(self, buffer: Array) -> None:
        """Bind to `buffer` and take the value along."""
        if self.fresh == PACKED:
            self.sync()
        if self.fresh & NATIVE:
            assert self.buffer is not None
            buffer[: self.layout.elements] = self.buffer[: self.layout.elements]
        self.bind(buffer)

    def clear(self) -> None:
        """Set to zero without touching memory: the next writer overwrites, a reader sees zeros."""
        self.fresh = ZERO

    def lay_out(self, layout: Layout) -> None:
        """Change the layout; a value of the same shape survives, another shape starts at zero."""
        if self.pinned or (layout == self.layout and layout.shape == self.shape):
            return
        if self.guard is not None:
            self.guard(self)
        if layout.shape != self.shape or self.fresh == ZERO:
            self.fresh, self._plain = ZERO, None
        else:
            self._plain = self.copied()
            self.fresh = PLAIN
        self.bind(None)
        self._replace_layout(layout)

    def _replace_layout(self, layout: Layout) -> None:
        self.layout = layout
        if layout.is_plain and self._plain is not None:
            plain, self._plain = self._plain, None
            self.allocate()
            assert self.buffer is not None
            self.buffer[: layout.elements] = plain.reshape(-1)
            self.fresh = NATIVE

    @property
    def held(self) -> bool:
        """True if a caller still holds a plain array that `array` returned (on the host)."""
        if self._plain is not None:
            return sys.getrefcount(self._plain) > _UNHELD
        return self._window is not None and sys.getrefcount(self._window) > _UNHELD

    def drop_copy(self) -> None:
        """Keep the value in its own layout alone, where nobody holds a plain array of it."""
        self.sync()
        if self.fresh == BOTH and not self.held:
            self.fresh, self._plain = NATIVE, None
            self.backend.exported.discard(self)

    def release(self) -> None:
        """Give back all memory; the value is lost."""
        self.bind(None)
        self.fresh, self._plain = ZERO, None

    def before_run(self) -> None:
        """An array given out earlier may have been written since: believe it."""
        if self.fresh == BOTH and self.held:
            self.fresh = PLAIN

    def after_run(self) -> None:
        """Bring an array that is still held up to date, as Caffe's shared memory would."""
        if self.fresh == NATIVE and self.held:
            self._fresh_plain()
            self.fresh = BOTH


def aligned(elements: int, dtype: np.dtype[Any], alignment: int = 64) -> np.ndarray[Any, Any]:
    """An uninitialised flat array whose data starts on a cache line."""
    if shortage := memory_shortage(elements * dtype.itemsize):
        raise BackendError(
            f"an array of {elements:,} elements {shortage}; use a smaller batch or input"
        )
    extra = alignment // dtype.itemsize
    raw = np.empty(elements + extra, dtype)
    start = (-raw.ctypes.data % alignment) // dtype.itemsize
    return raw[start : start + elements]


def aligned_array(shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The same in float32, with a shape."""
    return aligned(prod(shape), np.dtype(np.float32)).reshape(shape)
